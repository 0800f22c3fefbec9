package packages

import (
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File is a file whose names are missing.
type File struct {
	Path    string
	BuildID []byte
}

// System is the installation that is asked.
type System struct {
	Root string // before all paths; "" for the running system
}

// IsDistributed says whether a file may be of a package of the distribution: whether it is where these have
// their programs and libraries.
func IsDistributed(path string) bool {
	return distributed.MatchString(path) && !strings.HasPrefix(path, "/usr/local/")
}

var distributed = regexp.MustCompile(`^/(usr|lib|lib32|lib64|libx32|bin|sbin)/`)

// Install is the command that installs the debug symbols of files; "" if the distribution has no packages of
// these, or no package has the files.
func (s *System) Install(files []File) string {
	ids := s.distribution()
	switch {
	case slices.Contains(ids, "debian"), slices.Contains(ids, "ubuntu"):
		return s.apt(files)
	case slices.Contains(ids, "fedora"), slices.Contains(ids, "rhel"):
		return byBuildID(files, "dnf --enablerepo='*debug*' install", func(id string) string {
			return "/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + ".debug"
		})
	case slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, "suse") }):
		return byBuildID(files, "zypper install -C", func(id string) string {
			return "'debuginfo(build-id)=" + id + "'"
		})
	}
	return ""
}

// maxRelease bounds the file that names the distribution.
const maxRelease = 64 << 10

// distribution is the ID of the distribution, and of those that it is like, by os-release(5).
func (s *System) distribution() (ids []string) {
	file, err := os.Open(filepath.Join(s.Root, "/etc/os-release"))
	if err != nil {
		file, err = os.Open(filepath.Join(s.Root, "/usr/lib/os-release"))
	}
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRelease))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			ids = append(ids, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	return ids
}

// packageName is what may be in a command that somebody copies into a shell.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]*$`)

// apt installs what Debian's and Ubuntu's archives of debug symbols have, by the names of packages.
func (s *System) apt(files []File) string {
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	var names []string
	for _, owner := range owners(filepath.Join(s.Root, "/var/lib/dpkg/info"), paths) {
		if !packageName.MatchString(owner) {
			continue
		}
		name := owner + "-dbgsym"
		if owner == "libc6" {
			name = "libc6-dbg" // the one that is in the main archive
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "apt install " + strings.Join(names, " ")
}

// byBuildID installs the packages that have debug files of these build IDs.
func byBuildID(files []File, command string, name func(id string) string) string {
	found := false
	for _, f := range files {
		if len(f.BuildID) > 1 {
			command += " " + name(hex.EncodeToString(f.BuildID))
			found = true
		}
	}
	if !found {
		return ""
	}
	return command
}
