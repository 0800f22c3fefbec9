package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/opener"
	testlane "unspool/testdata/lane"
)

func startOpener(t *testing.T) *opener.Client {
	t.Helper()
	c, err := opener.StartWithCommand(os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The child that waits to become the command has a name of its own until then.
func TestWaitingCommandHasAName(t *testing.T) {
	t.Parallel()
	c, err := newCommand(startOpener(t), []string{"sleep", "1000"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.cancel()
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.pid)); string(comm) != "unspool-command\n" {
		t.Errorf("it is called %q: %v", comm, err)
	}
}

// Of commands that are started at the same time, each runs at once, and none holds up another one.
func TestCommandsAtTheSameTime(t *testing.T) {
	t.Parallel()
	const veryLong = "1000"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			c, err := newCommand(startOpener(t), []string{"sleep", veryLong})
			if err != nil {
				t.Error(err)
				return
			}
			ended := make(chan struct{})
			// It returns when the command runs.
			if err := c.run(func() { close(ended) }); err != nil {
				t.Error(err)
			}
			select {
			case <-ended:
				t.Error("the command has ended")
			default:
			}
			_ = unix.Kill(c.pid, unix.SIGKILL)
			<-ended
			c.reap()
		})
	}
	all.Wait()
}

// The end of a command is waited for in the runtime's poller: no thread waits for it in a system call, which
// would take the recording's only processor away for up to 20 ms. Nor is it reaped before reap is called, when the
// recording has ordinary priority again.
func TestEndOfCommandIsPolledFor(t *testing.T) {
	waiting := func() (n int) {
		threads, err := filepath.Glob("/proc/self/task/*/wchan")
		if err != nil || len(threads) == 0 {
			t.Fatal("no threads: ", err)
		}
		for _, path := range threads {
			if where, _ := os.ReadFile(path); string(where) == "do_wait" { // a thread may have ended
				n++
			}
		}
		return n
	}
	before := waiting()
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = other.Wait()
		close(ended)
	}()
	if !testlane.Soon(func() bool { return waiting() > before }) {
		t.Skip("the kernel does not say where threads wait")
	}
	_ = other.Process.Kill()
	<-ended

	c, err := newCommand(startOpener(t), []string{"sleep", "0.5"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.run(func() {}); err != nil {
		t.Fatal(err)
	}
	for !c.ended() {
		if waiting() > before {
			t.Fatal("a thread waits for the command")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid)); !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the command has been reaped: %q, %v", stat, err)
	}
	c.reap()
	if c.exitStatus() != 0 {
		t.Errorf("the command ended with status %d", c.exitStatus())
	}
}
