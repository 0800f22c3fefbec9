package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/oldkernel"
	"unspool/testdata/programs"
)

// A refusal is a kernel that refuses something when an event is recorded, and a part of what record says then.
type refusal struct {
	name   string
	kernel oldkernel.Kernel
	event  string
	says   string
	reads  string // the option with which the recording is read on that kernel, too
}

// TestKernelsThatRefuse records on kernels that do not know some call or attribute, or allow less than this one: each
// stack is complete, and what is missing is said.
func TestKernelsThatRefuse(t *testing.T) {
	t.Parallel()
	needRoot(t)
	plain := programs.Build(t, "plain")
	chains := oldkernel.Attribute(func(a *unix.PerfEventAttr) bool {
		return a.Sample_type&unix.PERF_SAMPLE_CALLCHAIN != 0 && a.Bits&unix.PerfBitExcludeCallchainKernel == 0
	}, unix.EACCES)
	cases := []refusal{
		{"callchains of the kernel are not for everybody", chains, "page-faults:u", "", ""},
		{"nor is its code", chains, "page-faults", "recording user code only", ""},
		{"Linux 4.18", oldkernel.WithoutAny(), "page-faults", "not in force: Landlock", "--sandbox"},
	}
	for _, f := range oldkernel.Newer {
		c := refusal{"without " + f.Name, f.Kernel, "page-faults", f.Says, ""}
		if f.Name == "openat2" { // which confinement refuses, too
			c.reads = "--no-sandbox"
		}
		cases = append(cases, c)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var refused atomic.Int64
			kernel := c.kernel.Counting(&refused)
			r := recordOn(t, kernel, "-e", c.event, "-c", "1", "--stack-size", "8192", "--", plain,
				programs.Times(counted))
			r.whollyComplete(t)
			if r.stats.Samples.Total < counted || r.stats.Samples.Lost > 0 {
				t.Errorf("%d samples, %d lost", r.stats.Samples.Total, r.stats.Samples.Lost)
			}
			if !strings.Contains(r.stderr, c.says) || c.says == "" && strings.Contains(r.stderr, "not in force") {
				t.Errorf("it says, instead of %q:\n%s", c.says, r.stderr)
			}
			if c.reads != "" {
				e := start(t, t.TempDir(), func(cmd *exec.Cmd) {
					withoutServers(t, cmd)
					kernel.Runs(t, cmd)
				}, "convert", c.reads, r.path, "--format", "folded", "-o", "-").wait()
				if e.status != 0 || !strings.Contains(e.stdout, "plain_middle;plain_leaf") {
					t.Errorf("convert: status %d\n%s\n%s", e.status, e.stdout, e.stderr)
				}
			}
			// Without real-time priority no stacks are read when they are sampled, so less is asked for.
			if refused.Load() == 0 && getsRealTime() {
				t.Error("nothing was refused")
			}
		})
	}
}

// TestHelpOfKernels expects the topic to name the releases that make test-kernels tries, and whatever older kernels
// lack.
func TestHelpOfKernels(t *testing.T) {
	e := unspoolHere(t, "", "help", "kernels")
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("%+v", e)
	}
	text := strings.Join(strings.Fields(e.stdout), " ")
	_, tried, ok := strings.Cut(string(mustRead(t, "../../Makefile")), "\nKERNELS ?= ")
	if !ok {
		t.Fatal("the Makefile has no KERNELS")
	}
	for _, suite := range strings.Fields(firstLine(tried)) {
		if _, of, ok := strings.Cut(suite, "-"); ok {
			suite = of
		}
		if !strings.Contains(text, suite) {
			t.Errorf("it does not name %s:\n%s", suite, e.stdout)
		}
	}
	for _, f := range oldkernel.Newer {
		for name := range strings.SplitSeq(f.Name, " and ") {
			if !strings.Contains(text, name) {
				t.Errorf("it does not name %q:\n%s", name, e.stdout)
			}
		}
	}
}

// withoutServers starts a command where no file system of another test has a server. Where there is one, a process
// opens files whose filter refuses openat2 before the kernel of the test does.
func withoutServers(t *testing.T, cmd *exec.Cmd) {
	programs.NeedMounts(t)
	const script = `while read -r id parent device root where rest; do
	case $rest in *" - fuse"*) umount -c -l "$where" ;; esac
done </proc/self/mountinfo
exec "$@"`
	cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}

// getsRealTime reports whether a recording gets real-time priority here: not if somebody has chosen another one.
func getsRealTime() bool {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return err == nil && raw == 20 && exec.Command("chrt", "-f", "1", "true").Run() == nil
}

// TestCommandWaitsWhenItsEventsAreOpened expects the process that becomes the command to have said that it waits, each
// time that an event is opened for it. Before, an exec of its own could enable the event, and samples of unspool came
// before those of the command.
func TestCommandWaitsWhenItsEventsAreOpened(t *testing.T) {
	t.Parallel()
	needRoot(t)
	said := make(map[string]bool) // threads that wrote something
	var opened, waited atomic.Int32
	watch := oldkernel.Kernel{
		unix.SYS_WRITE: func(c *oldkernel.Call) unix.Errno {
			said[strconv.Itoa(c.PID)] = true
			return 0
		},
		unix.SYS_PERF_EVENT_OPEN: func(c *oldkernel.Call) unix.Errno {
			if pid := int32(c.Args[1]); pid > 0 {
				opened.Add(1)
				threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
				if slices.ContainsFunc(threads, func(e os.DirEntry) bool { return said[e.Name()] }) {
					waited.Add(1)
				}
			}
			return 0
		},
	}
	r := recordOn(t, watch, slices.Concat(programs.Faults(),
		[]string{"--", programs.Build(t, "plain"), programs.Times(counted)})...)
	r.whollyComplete(t)
	if opened.Load() == 0 || opened.Load() > waited.Load() {
		t.Errorf("%d events were opened, %d of them when the process waited", opened.Load(), waited.Load())
	}
}

// recordOn is record on another kernel.
func recordOn(t *testing.T, kernel oldkernel.Kernel, args ...string) recording {
	t.Helper()
	dir := t.TempDir()
	path, stats := dir+"/perf.data", dir+"/stats.json"
	e := start(t, dir, func(cmd *exec.Cmd) { kernel.Runs(t, cmd) },
		slices.Concat([]string{"record", "-o", path, "--stats", stats}, args)...).wait()
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	return made(t, path, stats, e)
}
