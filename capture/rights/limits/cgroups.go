package limits

import (
	"bytes"

	"unspool/vmas/sys"
)

// A reading is a file that is read without any memory of the runtime's.
type reading [4 << 10]byte

// scratch is for one thread: before others begin, or when all are to end.
var scratch struct{ cgroups, number reading }

// read reads a file, up to what there is room for. Its name ends with a zero.
func (r *reading) read(name []byte) []byte {
	fd, err := sys.Open(name)
	if err != nil {
		return nil
	}
	n, _ := sys.Read(fd, r[:])
	sys.Close(fd)
	return r[:n]
}

// number reads a file that has a number. ok is false for none, as where there is no limit.
func (r *reading) number(folder *line, name string) (n uint64, ok bool) {
	path := *folder
	path.add(name).add("\x00")
	for _, c := range r.read(path.text[:path.n]) {
		if c < '0' || c > '9' {
			break
		}
		n, ok = n*10+uint64(c-'0'), true
	}
	return n, ok
}

// fewestTasks finds the cgroup of this process, among those that it is in, that has room for the fewest threads and
// processes, and says what its limit is (Documentation/admin-guide/cgroup-v1/pids.rst and cgroup-v2.rst). Without
// any limit it is that of the kernel's PIDs.
func (l *line) fewestTasks() (limit, used uint64) {
	const mostPIDs = 1 << 22
	limit = mostPIDs
	var folder line
	for all := scratch.cgroups.read(ownCgroups); len(all) > 0; {
		var one []byte
		one, all, _ = bytes.Cut(all, newline)
		_, one, _ = bytes.Cut(one, colon)
		controllers, path, _ := bytes.Cut(one, colon)
		switch {
		case bytes.Equal(controllers, pids):
			folder = line{}
			folder.add("/sys/fs/cgroup/pids").bytes(path)
		case len(controllers) == 0 && folder.n == 0:
			folder.add("/sys/fs/cgroup").bytes(path)
		}
	}
	const root = len("/sys/fs/cgroup")
	for folder.n >= root {
		folder.n = len(bytes.TrimRight(folder.text[:folder.n], "/"))
		most, ok := scratch.number.number(&folder, "/pids.max")
		if ok {
			current, _ := scratch.number.number(&folder, "/pids.current")
			if remaining(most, current) < remaining(limit, used) {
				limit, used = most, current
				*l = line{}
				l.add("the number of processes and threads is limited to ").number(most)
				l.add(" (pids.max of ").bytes(folder.text[:folder.n]).add(")")
			}
		}
		folder.n = max(0, bytes.LastIndexByte(folder.text[:folder.n], '/'))
	}
	return limit, used
}

// remaining is how many more there can be.
func remaining(limit, used uint64) uint64 { return limit - min(used, limit) }

// The cgroups of this process, what parts the fields of that file, and the name of the controller.
var ownCgroups, newline, colon, pids = []byte("/proc/self/cgroup\x00"), []byte("\n"), []byte(":"), []byte("pids")
