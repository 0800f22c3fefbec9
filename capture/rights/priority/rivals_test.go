package priority

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRealTimeThreadsAreFound: one that sleeps is not busy.
func TestRealTimeThreadsAreFound(t *testing.T) {
	if what, ok := Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		in.Close()
		_ = cat.Wait()
	}()
	pid := cat.Process.Pid
	if AnyRealTime(pid) {
		t.Error("cat has ordinary priority")
	}
	if err := set(pid, realTime(lowest)); err != nil {
		t.Fatal(err)
	}
	if !AnyRealTime(pid) || !IsRealTime(pid) {
		t.Error("cat has real-time priority")
	}
	if isBusy(2) { // kthreadd, or whoever has its number in a container
		t.Error("the kernel's thread is a program's")
	}
	if !isBusy(os.Getpid()) && !strings.Contains(readStat(t), ") S") {
		t.Error("this process is not seen to run")
	}
}

func readStat(t *testing.T) string {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	return string(stat)
}
