package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/capture/output/human"
)

// cgroupRoots are where systems mount the hierarchy of cgroups that has perf_event: version 1, version 2
// beside version 1, and version 2 alone.
var cgroupRoots = []string{"/sys/fs/cgroup/perf_event", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"}

// openCgroup opens the directory of a cgroup for perf_event_open(2). A path that is not below one of the
// roots is looked for below each of them; a name alone can be that of a unit of systemd's, wherever it is.
func openCgroup(path string, roots []string) (*os.File, error) {
	if filepath.IsAbs(path) {
		if dir := openIfCgroup(path); dir != nil {
			return dir, nil
		}
	}
	for _, root := range roots {
		if dir := openIfCgroup(filepath.Join(root, path)); dir != nil {
			return dir, nil
		}
	}
	if strings.Contains(path, "/") {
		return nil, fmt.Errorf("-G %s: there is no such cgroup", path)
	}
	return openUnit(path, roots)
}

const (
	// mostCgroupEntries bounds a search, by entries of directories: a cgroup has about fifty files.
	mostCgroupEntries = 1 << 19
	// mostUnits is how many units of a name are listed.
	mostUnits = 5
)

// openUnit opens the cgroup of a unit, as shop.service, or shop for that. Users can make cgroups, too, so one that has
// the name is not taken for another that has it.
func openUnit(name string, roots []string) (*os.File, error) {
	left := mostCgroupEntries
	for _, root := range roots {
		dir := openIfCgroup(root)
		if dir == nil {
			continue
		}
		dir.Close()
		units, err := findUnits(root, name, &left)
		switch {
		case err != nil:
			return nil, err
		case len(units) == 1:
			if dir := openIfCgroup(filepath.Join(root, units[0])); dir != nil {
				return dir, nil
			}
		case len(units) > 0:
			shown := strings.Join(units[:min(len(units), mostUnits)], ", ")
			if more := len(units) - mostUnits; more > 0 {
				shown += fmt.Sprintf(" and %s", human.Plural(uint64(more), "other"))
			}
			return nil, fmt.Errorf("-G %s: several cgroups have that name, give the path of one: %s", name, shown)
		}
	}
	return nil, fmt.Errorf("-G %s: there is no such cgroup", name)
}

// findUnits finds the cgroups of a unit below a root, those first that are not so deep. Their paths are relative to it.
func findUnits(root, name string, left *int) (units []string, err error) {
	for next := []string{"."}; len(next) > 0; next = next[1:] {
		dir, err := os.Open(filepath.Join(root, next[0]))
		if err != nil {
			continue // it is gone
		}
		entries, err := dir.ReadDir(max(*left, 1))
		dir.Close()
		if *left -= len(entries); *left <= 0 {
			return nil, fmt.Errorf("-G %s: there are too many cgroups to search, give its path below %s", name, root)
		}
		if err != nil && err != io.EOF {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(next[0], e.Name())
			switch {
			case !e.IsDir():
			case e.Name() == name, e.Name() == name+".service":
				units = append(units, path)
			default:
				next = append(next, path)
			}
		}
	}
	return units, nil
}

// cgroupIsGone reports whether the cgroup of a directory was removed. There may be another one of its path now.
func cgroupIsGone(dir *os.File) bool {
	was, err := dir.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(dir.Name())
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(was, is)
}

// openIfCgroup opens a directory if it is one of a hierarchy of cgroups, else it returns nil.
func openIfCgroup(path string) *os.File {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	var st unix.Statfs_t
	if unix.Fstatfs(int(dir.Fd()), &st) == nil &&
		(st.Type == unix.CGROUP2_SUPER_MAGIC || st.Type == unix.CGROUP_SUPER_MAGIC) {
		return dir
	}
	dir.Close()
	return nil
}
