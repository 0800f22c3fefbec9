package opener

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// The opener reads the memory of its command and of what that has started, as it does for an ordinary user where Yama
// restricts ptrace: run as such a one with kernel.yama.ptrace_scope 1, this test fails if it is not their ancestor.
func TestOpenerReadsItsCommand(t *testing.T) {
	t.Parallel()
	output, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	c, err := StartWithCommand(stdout)
	stdout.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.wait = long
	pid, err := c.Command().Await()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Seal(false); err != nil {
		t.Fatal(err)
	}
	const script = "sleep 1000 & echo $!; wait; exit 7"
	if errno := c.Command().Run("/bin/sh", []string{"sh", "-c", script}); errno != 0 {
		t.Fatal(errno)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{pid, child} {
		lane.Eventually(t, fmt.Sprintf("memory of process %d", pid), func() bool { // it may just execute a program
			maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
			before, _, _ := strings.Cut(string(maps), "-")
			start, err := strconv.ParseUint(before, 16, 64)
			return err == nil && c.ReadMemory(uint32(pid), make([]byte, 64), start) == 64
		})
	}
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.Command().AwaitEnd()
	if status, err := c.Command().Reap(); err != nil || status.ExitStatus() != 7 {
		t.Errorf("status %v, %v", status, err)
	}
}
