package programs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running program.
type Process struct {
	*exec.Cmd
	Chain Chain
	ended chan struct{}
}

// Start runs the executable of a program that knows its chain for some seconds
// and returns when it has printed the chain. The process is killed when the test
// ends, if it still runs.
func Start(t testing.TB, path string, seconds int, args ...string) *Process {
	t.Helper()
	return start(t, exec.Command(path, append([]string{strconv.Itoa(seconds)}, args...)...), false)
}

// StartCounted is Start for a program that is at the end of its chain so many times, and takes a page fault in user
// mode each time, see [Faults]. It is stopped, with its chain printed, until [Process.Continue].
func StartCounted(t testing.TB, path string, times int, args ...string) *Process {
	t.Helper()
	return start(t, exec.Command(path, append([]string{fmt.Sprintf("@%d", times)}, args...)...), true)
}

// Faults are the options by which unspool and perf take a sample at each page fault in user mode.
func Faults() []string { return []string{"-e", "page-faults:u", "-c", "1"} }

// Times is the first argument of a program that is to be at the end of its chain n times, as a command.
func Times(n int) string { return fmt.Sprintf("=%d", n) }

func start(t testing.TB, cmd *exec.Cmd, stops bool) *Process {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := StartTied(t, cmd); err != nil {
		t.Fatal(err)
	}
	p := &Process{Cmd: cmd, ended: make(chan struct{})}
	late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err == nil && stops {
		err = waitStopped(cmd.Process.Pid)
	}
	late.Stop()
	go func() {
		io.Copy(io.Discard, lines)
		cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() // fails if it has ended, which is fine
		<-p.ended
	})
	if err != nil {
		t.Fatalf("%s: no chain: %v", cmd.Path, err)
	}
	if p.Chain, err = ParseChain(line); err != nil {
		t.Fatalf("%s: %v", cmd.Path, err)
	}
	return p
}

// waitStopped waits until a child has been stopped by a signal.
func waitStopped(pid int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		const stopped = 5 // CLD_STOPPED
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case info.Code != stopped:
			return fmt.Errorf("process %d has ended", pid)
		default:
			return nil
		}
	}
}

// Continue lets a program of [StartCounted] go on.
func (p *Process) Continue() { p.Process.Signal(unix.SIGCONT) }

// Ended is closed when the program has ended and is gone from /proc.
func (p *Process) Ended() <-chan struct{} { return p.ended }
