package limits

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// A resource is one that a process is given by setrlimit(2).
type resource struct {
	number int
	what   string // "is limited"
	option string // of ulimit, in the shell
	least  uint64 // that unspool needs
	unit   uint64
	name   string // of the unit
}

var (
	// Of addresses, most are reserved by Go's runtime, the rest is for rings and thread stacks.
	addresses = resource{unix.RLIMIT_AS, "the address space is", "-v", 3 << 29, 1 << 20, " MiB"}
	// A process that records takes 140 MiB at least, as the runtime takes 64 MiB at a time.
	memory = resource{unix.RLIMIT_DATA, "the memory of a process is", "-d", 320 << 20, 1 << 20, " MiB"}
	// The runtime takes 64 KiB for its own.
	stack = resource{unix.RLIMIT_STACK, "the stack is", "-s", 128 << 10, 1 << 10, " KiB"}
	// The opener of a recording of all processes has most, up to 198 with two CPUs: 118 tell whether threads have run,
	// 50 are for the memory of processes (see package rest), 21 for the lines to the recording. That has up to 98, as
	// mapped files get half of the limit. Counted in /proc/PID/fd, with a limit of 256, while a compiler, shells and 150
	// other processes ran.
	files = resource{unix.RLIMIT_NOFILE, "the number of open files is", "-n", 256, 1, ""}
	// See leastTasks.
	ofUser = resource{unix.RLIMIT_NPROC, "the number of this user's processes and threads is", "-u", 0, 1, ""}
)

// leastTasks is how many more threads and processes have to have room: 39 for top with two CPUs. For each CPU, Go's
// scheduler has one in each process, and a recording one that reads stacks.
func leastTasks() uint64 { return 36 + 2*uint64(runtime.NumCPU()) }

// Check returns an error that names the first limit that is too low.
func Check() error {
	var said line
	for _, r := range []*resource{&addresses, &memory, &stack, &files} {
		if said.tooLow(r) {
			return errors.New(said.String())
		}
	}
	if limit, used := said.leastRoom(); remaining(limit, used) < leastTasks() {
		said.tasksNeeded(used)
		return errors.New(said.String())
	}
	return nil
}

// Tasks returns which limit of threads and processes has least room, and how many there are.
func Tasks() string {
	var said line
	if _, used := said.leastRoom(); said.n > 0 {
		said.add(", there are ").number(used)
	}
	return said.String()
}

// leastRoom finds the limit of threads and processes that has room for the fewest, and says what it is.
func (l *line) leastRoom() (limit, used uint64) {
	limit, used = l.fewestTasks()
	if n := ofUser.limit(); n < mostCounted && os.Getuid() != 0 {
		if tasks := tasksOfUser(); remaining(n, tasks) < remaining(limit, used) {
			limit, used, *l = n, tasks, line{}
			l.limited(&ofUser, n)
		}
	}
	return limit, used
}

// tooLow reports whether a limit is too low, and writes that into the line.
func (l *line) tooLow(r *resource) bool {
	limit := r.limit()
	if limit >= r.least {
		return false
	}
	l.limited(r, limit)
	l.add(", and at least ").number(r.least / r.unit).add(r.name).add(" are needed")
	return true
}

// tasksNeeded returns how many more threads and processes there have to be room for, and how many there are, 0 if that
// is not known.
func (l *line) tasksNeeded(used uint64) {
	if used > 0 {
		l.add(", there are ").number(used)
	}
	l.add(", and at least ").number(leastTasks()).add(" more are needed")
}

// limit is the limit of this process.
func (r *resource) limit() uint64 {
	limit, err := sys.Getrlimit(r.number)
	if err != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Cur
}

// limited returns what a limit is.
func (l *line) limited(r *resource, limit uint64) {
	l.add(r.what).add(" limited to ").number(limit / r.unit).add(r.name).add(" (ulimit ").add(r.option).add(")")
}

// mostCounted is the highest limit of a user's processes and threads for which these are counted.
const mostCounted = 8192

// tasksOfUser counts the processes and threads of this user.
func tasksOfUser() (n uint64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	uid := os.Getuid()
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name()+"/task", &st) == nil && int(st.Uid) == uid {
			n += wide(st.Nlink) - 2 // the folders of its threads
		}
	}
	return n
}

// wide is a number of links, which has 32 bits on some architectures.
func wide[N uint32 | uint64](n N) uint64 { return uint64(n) }
