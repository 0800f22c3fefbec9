package packages

import (
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
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

// IsDistributed reports whether a file may be of a package of the distribution: whether it is where these have
// their programs and libraries.
func IsDistributed(path string) bool {
	return distributed.MatchString(path) && !strings.HasPrefix(path, "/usr/local/")
}

var distributed = regexp.MustCompile(`^/(usr|lib|lib32|lib64|libx32|bin|sbin)/`)

// Install returns how the debug symbols of files are installed, commands between backticks; "" if the distribution has
// no packages of these, or no package has the files.
func (s *System) Install(files []File) string {
	ids := s.distribution()
	switch {
	case slices.Contains(ids, "debian"), slices.Contains(ids, "ubuntu"):
		return s.apt(files, slices.Contains(ids, "ubuntu"))
	case slices.Contains(ids, "alpine"):
		return s.apk(files)
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

// distribution is the ID of the distribution, and of those that it is like, by os-release(5).
func (s *System) distribution() (ids []string) {
	for _, key := range []string{"ID", "ID_LIKE"} {
		ids = append(ids, strings.Fields(s.release(key, ""))...)
	}
	return ids
}

// release is what os-release(5) has for a key, or else the default.
func (s *System) release(key, otherwise string) string {
	text := s.read("/etc/os-release")
	if text == nil {
		text = s.read("/usr/lib/os-release")
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name == key {
			return strings.Trim(value, `"'`)
		}
	}
	return otherwise
}

// maxText bounds the files that are read as a whole.
const maxText = 1 << 20

// read reads a small file of the system, nil if there is none.
func (s *System) read(path string) []byte {
	file, err := openRegular(filepath.Join(s.Root, path))
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxText))
	if err != nil {
		return nil
	}
	return text
}

// openRegular opens a file, and nothing that could be waited for: the root may be that of a stranger's container.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		file.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrInvalid}
	}
	return file, nil
}

// packageName is what may be in a command that somebody copies into a shell.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+_-]*$`)

// apt installs what Debian's and Ubuntu's archives of debug symbols have, by the names of packages.
func (s *System) apt(files []File, ubuntu bool) string {
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	var names []string
	for _, owner := range owners(filepath.Join(s.Root, "/var/lib/dpkg/info"), paths) {
		if !packageName.MatchString(owner) {
			continue
		}
		name := owner + dbgsymSuffix
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
	return s.aptInstall(names, ubuntu)
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
	return "`" + command + "`"
}
