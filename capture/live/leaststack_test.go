package live

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"unspool/perfring"
)

// TestCopiesAreSmallOnlyWhereTheRestIsRead: how small copies may become, by who reads what they lack.
func TestCopiesAreSmallOnlyWhereTheRestIsRead(t *testing.T) {
	for _, c := range []struct {
		rate                uint64
		isKnown, isRealTime bool
		want                int
	}{
		{20, true, true, 7168},
		{999, true, true, 7168},
		{1000, true, true, 32768},
		{5000, true, true, 32768},
		{5001, true, true, 0},
		{999, false, true, 0}, // events that are counted
		{999, true, false, 32768},
		{5001, true, false, 32768},
		{999, false, false, 32768},
	} {
		if got := leastCopy(c.rate, c.isKnown, c.isRealTime); got != c.want {
			t.Errorf("%d Hz, known %t, real-time priority %t: %d bytes, want %d", c.rate, c.isKnown, c.isRealTime, got, c.want)
		}
	}
}

// TestLeastStack: copies do not become smaller where nothing is read, or a size is asked for.
func TestLeastStack(t *testing.T) {
	clock, own := []perfring.Event{{Name: "cpu-clock"}}, []int{os.Getpid()}
	for _, c := range []struct {
		name string
		o    Options
		want int
	}{
		{"without real-time priority", Options{PIDs: own}, leastLateCopy},
		{"a command", Options{}, leastLateCopy},
		{"a size", Options{PIDs: own, StackSize: 65528}, 0},
		{"no joins", Options{PIDs: own, NoJoin: true}, 0},
		{"CFI only", Options{PIDs: own, Strict: true}, 0},
		{"a comparison", Options{PIDs: own, Pairs: true}, 0},
		{"a process that has ended", Options{PIDs: []int{1 << 22}}, leastLateCopy},
	} {
		c.o.Events = clock
		r := &recording{Options: c.o, command: &command{pid: os.Getpid()}}
		if got := r.leastStack(); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}

// nobody is a user without rights.
const nobody = 65534

// TestLeastStackOfAnOrdinaryUser: who may not read the memory of others has full copies of their stacks.
func TestLeastStackOfAnOrdinaryUser(t *testing.T) {
	if pid := os.Getenv("LEAST_STACK_OF"); pid != "" {
		r := &recording{Options: Options{AllCPUs: pid == "all", Events: []perfring.Event{{Name: "cpu-clock"}}}}
		if n, err := strconv.Atoi(pid); err == nil {
			r.PIDs = []int{os.Getpid(), n}
		}
		os.Stdout.WriteString("least " + strconv.Itoa(r.leastStack()) + "\n")
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	for of, want := range map[string]int{"all": 0, strconv.Itoa(os.Getpid()): 0, "own": leastLateCopy} {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "LEAST_STACK_OF="+of)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "least "+strconv.Itoa(want)+"\n") {
			t.Errorf("of %s, want %d: %v\n%s", of, want, err, out)
		}
	}
}
