package packages

import (
	"cmp"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"unspool/unwind/image/fileid"
	"unspool/vmas"
	"unspool/vmas/process"
)

// Has reports whether the system has the file that was recorded at a path, as far as its build ID or else its inode
// tells: the same path is another file's in another root, and after an update. The opener is nil for this process.
func (s *System) Has(opener process.FileOpener, path string, buildID []byte, id vmas.FileID) bool {
	id.BuildID = vmas.NewBuildID(buildID)
	if opener == nil {
		opener = process.Here{}
	}
	for _, path := range vmas.Paths(path) {
		file, err := opener.OpenWithin(cmp.Or(s.Root, "/"), path)
		if err != nil {
			continue
		}
		err = fileid.Check(file, &id)
		file.Close()
		if err == nil || err == fileid.ErrUnproven {
			return true
		}
	}
	return false
}

// Programs are those that Owners runs, if they are installed.
func Programs() []string { return []string{rpmQuery} }

const (
	rpmQuery = "rpm"
	// rpmTimeout bounds one query, as rpm may wait for the lock of another one.
	rpmTimeout = 4 * time.Second
)

// Owners returns name and version of the packages that files are of, by path: "libc6 2.36-9"; "" where no package
// manager knows it.
func (s *System) Owners(paths []string) []string {
	owners := owners(filepath.Join(s.Root, "/var/lib/dpkg/info"), paths)
	versions := versions(filepath.Join(s.Root, "/var/lib/dpkg/status"))
	for i, name := range owners {
		switch {
		case name != "":
			owners[i] = strings.TrimSpace(name + " " + versions[name])
		case s.Root == "":
			owners[i] = rpmOwner(paths[i])
		}
	}
	return owners
}

// rpmOwner asks rpm for the package of a file of the running system.
func rpmOwner(path string) string {
	if !strings.HasPrefix(path, "/") {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), rpmTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, rpmQuery, "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n", "--",
		path).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
