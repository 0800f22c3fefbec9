package opener

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/priority"
)

// A thread of the opener that answers has the priority of the others, though somebody has started it who has
// not.
func TestOpenersThreadsHaveItsPriority(t *testing.T) {
	c := startOpener(t)
	p := c.RaisePriority()
	defer p.Restore()
	if !priority.SaysRealTime(p.String()) {
		t.Skipf("skipped for want of real-time priority: %s", p)
	}
	if err := c.Seal(); err != nil {
		t.Fatal("seal: ", err)
	}
	pid := c.cmd.Process.Pid
	realTime := func() (n int) {
		for _, tid := range threadsOf(t, pid) {
			if priority.IsRealTime(tid) {
				n++
			}
		}
		return n
	}
	all := threadsOf(t, pid)
	if n := realTime(); n != len(all)-1 && n != len(threadsOf(t, pid))-1 {
		t.Errorf("%d of %d threads have real-time priority, which all but the monitor are to have", n, len(all))
	}
	for _, tid := range all {
		_ = unix.SchedSetAttr(tid, &unix.SchedAttr{Nice: -10}, 0)
	}
	if n := realTime(); n > 0 {
		t.Fatalf("%d threads have real-time priority", n)
	}
	if _, err := c.Owner(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	if realTime() == 0 {
		t.Error("the thread that has answered has no real-time priority")
	}
}

func threadsOf(t *testing.T, pid int) (tids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, name := range names {
		tid, _ := strconv.Atoi(filepath.Base(name))
		tids = append(tids, tid)
	}
	return tids
}
