package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cgroupRoots are where systems mount the hierarchy of cgroups that has perf_event: version 1, version 2
// beside version 1, and version 2 alone.
var cgroupRoots = []string{"/sys/fs/cgroup/perf_event", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"}

// openCgroup opens the directory of a cgroup for perf_event_open(2). A path that is not below one of the
// roots is looked for below each of them.
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
	return nil, fmt.Errorf("-G %s: there is no such cgroup", path)
}

// openIfCgroup opens a directory if it is one of a hierarchy of cgroups, else it returns nil.
func openIfCgroup(path string) *os.File {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(dir.Fd()), &fs) == nil &&
		(fs.Type == unix.CGROUP2_SUPER_MAGIC || fs.Type == unix.CGROUP_SUPER_MAGIC) {
		return dir
	}
	dir.Close()
	return nil
}
