package packages

import (
	"bufio"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// apkDatabases are where Alpine's apk notes which files are installed, before and after /usr was merged.
var apkDatabases = []string{"/lib/apk/db/installed", "/usr/lib/apk/db/installed"}

// apk installs debug symbols on Alpine. They are in a package of what the package of a file was built from, NAME-dbg.
func (s *System) apk(files []File) string {
	var names []string
	for _, path := range apkDatabases {
		for _, origin := range apkOrigins(filepath.Join(s.Root, path), files) {
			if name := origin + "-dbg"; packageName.MatchString(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "`apk add -U " + strings.Join(names, " ") + "`"
}

// apkOrigins finds what the packages of files were built from, in the order of the database: for each package its name
// (P:) and origin (o:), and its folders (F:), each followed by its files (R:).
func apkOrigins(database string, files []File) (origins []string) {
	file, err := openRegular(database)
	if err != nil {
		return nil
	}
	defer file.Close()
	wanted := make(map[string]bool)
	for _, f := range files {
		for _, path := range []string{f.Path, strings.TrimPrefix(f.Path, "/usr"), "/usr" + f.Path} {
			wanted[path] = true
		}
	}
	var origin, folder string
	lines := bufio.NewScanner(io.LimitReader(file, maxDatabase))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch key {
		case "P":
			origin, folder = value, ""
		case "o":
			origin = value
		case "F":
			folder = value
		case "R":
			if wanted["/"+folder+"/"+value] && !slices.Contains(origins, origin) {
				origins = append(origins, origin)
			}
		}
	}
	return origins
}

const maxDatabase = 64 << 20
