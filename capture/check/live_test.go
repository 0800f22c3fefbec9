package check

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"unspool/capture"
	"unspool/capture/symbols"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// waits has a handler on a stack of its own that works a little and then waits, so that what it has
// interrupted is read from the process.
const waits = `
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static char stack[1 << 16];

__attribute__((noipa)) static void work(void)
{
	struct timespec wait = { 0, 60000000 };
	for (int i = 0; i < 2000000; i++)
		__asm__ volatile("");
	nanosleep(&wait, NULL);
}

static void handler(int sig)
{
	(void)sig;
	for (;;)
		work();
}

__attribute__((noipa)) int inner(int n) { return raise(SIGUSR1) + n; }
__attribute__((noipa)) int outer(int n) { return inner(n) + 1; }

int main(int argc, char **argv)
{
	stack_t own = { .ss_sp = stack, .ss_size = sizeof stack };
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	(void)argv;
	sigaltstack(&own, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	return outer(argc);
}
`

// built is the path of a program.
func built(t *testing.T, source string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O2", "-o", path, path + ".c"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	return path
}

// TestSourcesOfLiveRecordings checks frames that nothing but a live recording has: those that the kernel
// found by frame pointers, and those that were read from the process.
func TestSourcesOfLiveRecordings(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, c := range []struct {
		name   string
		start  func() *exec.Cmd
		source unwind.Source
		least  uint64
	}{
		{"interrupted, with frame pointers", func() *exec.Cmd {
			return programs.Start(t, programs.Build(t, "signal", "-fno-omit-frame-pointer"), 20, "other").Cmd
		}, unwind.ByKernel, 100},
		{"interrupted by a handler that waits", func() *exec.Cmd {
			cmd := exec.Command(built(t, waits))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			return cmd
		}, unwind.ByLive, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checker := New(symbols.New(symbols.Options{}))
			_, err := capture.Record(context.Background(), capture.Options{
				PIDs: []int{c.start().Process.Pid}, Duration: 3 * time.Second, Freq: 999,
				StackSize: 16384, MaxStack: 256, Watcher: checker,
				Output: filepath.Join(t.TempDir(), "perf.data"),
			})
			if err != nil {
				t.Fatal(err)
			}
			r := checker.Result(c.name, 0, nil)
			all := r.All()
			if n := r.BySource[c.source]; n.Checked() < c.least || all.Wrong() > 0 {
				r.WriteText(os.Stderr)
				t.Errorf("%d edges by %v, %d of all wrong", n.Checked(), c.source, all.Wrong())
			}
		})
	}
}
