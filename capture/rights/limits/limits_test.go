package limits

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dies is how this program is to end, if it is started for that.
const dies = "UNSPOOL_LIMITS_DIES"

var large [][]byte

func init() {
	limit := func(resource int, n uint64) {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			fmt.Println(err)
			os.Exit(77)
		}
	}
	allocate := func() {
		debug.SetGCPercent(-1)
		for range 64 {
			large = append(large, make([]byte, 64<<20))
		}
		fmt.Println("allocated")
	}
	switch os.Getenv(dies) {
	case "memory":
		limit(unix.RLIMIT_DATA, 400<<20)
		allocate()
	case "little memory":
		limit(unix.RLIMIT_DATA, 100<<20)
		allocate()
	case "addresses":
		limit(unix.RLIMIT_AS, 2<<30)
		allocate()
	case "files":
		limit(unix.RLIMIT_NOFILE, 16)
		last := 0
		for fd, err := unix.Dup(2); err == nil; fd, err = unix.Dup(2) {
			last = fd
		}
		unix.Close(last)
		unix.Close(last - 1)
		fmt.Println(os.Pipe()) // the runtime's poller has others
	case "map":
		m := make(map[int]int)
		go func() {
			for {
				m[1]++
			}
		}()
		for {
			m[2]++
		}
	case "panic":
		panic("memory")
	case "":
		return
	}
	os.Exit(0)
}

// TestLastWords has this program end for want of something: it says what that is, in one line. What ends it otherwise
// is said as ever.
func TestLastWords(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector looks at what allocates nothing, too")
	}
	for how, want := range map[string]string{
		"memory": "unspool: there is no more memory: the memory of a process is limited to 400 MiB (ulimit -d)\n",
		"little memory": "unspool: the memory of a process is limited to 100 MiB (ulimit -d), " +
			"and at least 320 MiB are needed\n",
		"addresses": "unspool: there is no more memory: the address space is limited to 2048 MiB (ulimit -v)\n",
		"files":     "unspool: the number of open files is limited to 16 (ulimit -n), and at least 256 are needed\n",
		"map":       "",
		"panic":     "",
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), dies+"="+how)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, _ := cmd.Output()
		said, status := stderr.String(), cmd.ProcessState.ExitCode()
		switch {
		case how == "map" && status == 2 && strings.HasPrefix(said, "fatal error: concurrent map ") &&
			strings.Contains(said, "\ngoroutine "):
		case how == "panic" && status == 2 && strings.HasPrefix(said, "panic: memory\n") &&
			strings.Contains(said, "\ngoroutine "):
		case status != statusFailure || said != want:
			t.Errorf("%s: status %d, %.300q, %s", how, status, said, out)
		}
	}
}

// TestCheck says which of the limits is too low: none is here, unless more is needed.
func TestCheck(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip("skipped for want of room: ", err)
	}
	limit := files.limit()
	files.least = limit + 1
	defer func() { files.least = 256 }()
	want := fmt.Sprintf("the number of open files is limited to %d (ulimit -n), and at least %d are needed",
		limit, limit+1)
	if err := Check(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if limit, used := new(line).leastRoom(); limit < used {
		t.Errorf("%d of %d", used, limit)
	}
}

// TestLine adds to a line what there is room for.
func TestLine(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 7: "7", 10: "10", 1<<64 - 1: "18446744073709551615"} {
		var l line
		if got := l.add("(").number(n).bytes([]byte(")")).String(); got != "("+want+")" {
			t.Errorf("%d: %q", n, got)
		}
	}
	var l line
	for range 100 {
		l.add(strings.Repeat("x", 30)).number(1 << 62)
	}
	if l.n != len(l.text) {
		t.Errorf("%d bytes", l.n)
	}
}

// TestCallsAllocateNothing: they are made when there is no memory.
func TestCallsAllocateNothing(t *testing.T) {
	if n := testing.AllocsPerRun(10, func() {
		var l line
		limit, used := l.fewestTasks()
		l.tasksNeeded(used + limit)
		for _, r := range []*resource{&addresses, &memory, &stack, &files, &ofUser} {
			_ = l.tooLow(r)
			l.limited(r, 1)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTasksOfUser counts threads of this user's.
func TestTasksOfUser(t *testing.T) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if n := tasksOfUser(); n < uint64(len(threads)) {
		t.Errorf("%d of this user, of which this process has %d", n, len(threads))
	}
}
