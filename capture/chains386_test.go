package capture_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"unspool/capture"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/programs"
	"unspool/unwind"

	"golang.org/x/sys/unix"
)

// TestChainsOf32BitPrograms records i386 programs that print their call chain, and compares every stack with
// it.
func TestChainsOf32BitPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	programs.NeedMode(t, "-m32", "gcc", "g++")
	for _, p := range []struct {
		programs.Program
		flags []string
	}{
		{programs.Program{Name: "plain"}, nil},
		{programs.Program{Name: "plain"}, []string{"-O0"}},
		{programs.Program{Name: "plain"}, []string{"-static"}},
		{programs.Program{Name: "qsort"}, nil},
		{programs.Program{Name: "qsort"}, []string{"-static"}},
		{programs.Program{Name: "thread"}, nil},
		{programs.Program{Name: "thread"}, []string{"-static-pie"}},
		{programs.Program{Name: "signal"}, nil},
		{programs.Program{Name: "signal"}, []string{"-static"}},
		{programs.Program{Name: "deep"}, nil},
		{programs.Program{Name: "alloca"}, nil},
		{programs.Program{Name: "realign"}, nil},
		{programs.Program{Name: "exception"}, nil},
		{programs.Program{Name: "coroutine"}, nil},
		{programs.Program{Name: "coroutine"}, []string{"-static"}},
		{programs.Program{Name: "plt"}, nil},
	} {
		t.Run(strings.Join(append([]string{p.String()}, p.flags...), " "), func(t *testing.T) {
			t.Parallel()
			proc := programs.Start(t, programs.Build(t, p.Name, append([]string{"-m32"}, p.flags...)...), 20,
				p.Args...)
			path := filepath.Join(t.TempDir(), "perf.data")
			var out capture.Outcome
			for range 5 { // until the program gets to run
				var err error
				out, err = capture.Record(context.Background(), capture.Options{
					PIDs: []int{proc.Process.Pid}, Freq: 1999, StackSize: 65528, MaxStack: 2048,
					Duration: 400 * time.Millisecond, Output: path,
				})
				if err != nil {
					t.Fatal(err)
				}
				if out.Stats.User >= 30 {
					break
				}
			}
			samples, matched := 0, 0
			for _, s := range stacks(t, path) {
				samples += s.count
				if err := proc.Chain.Match(s.names); err == nil {
					matched += s.count
				} else {
					t.Logf("%d samples: %.600v", s.count, err)
				}
			}
			if samples < 20 || matched*100 < samples*99 {
				t.Errorf("%d of %d stacks match; ended %v", matched, samples, out.Stats.Ended)
			}
			if complete := int(out.Stats.Ended[unwind.Root]); complete > matched || complete*100 < samples*99 {
				t.Errorf("%d of %d stacks match, %d are said to be complete", matched, samples, complete)
			}
		})
	}
}

// TestStacksAtTheEndOfTheAddressSpace records a program whose stack, without randomisation, ends where its
// address space does. The kernel then copies as much as is left, whatever the size.
func TestStacksAtTheEndOfTheAddressSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, mode := range []string{"-m32", "-m64"} {
		t.Run(mode, func(t *testing.T) {
			programs.NeedMode(t, mode, "gcc")
			proc := startInOrder(t, programs.Build(t, "plain", mode))
			path := filepath.Join(t.TempDir(), "perf.data")
			var notes []string
			out, err := capture.Record(context.Background(), capture.Options{
				PIDs: []int{proc.Process.Pid}, Freq: 1999, StackSize: 65528, MaxStack: 2048,
				Duration: time.Second, Output: path, Note: func(s string) { notes = append(notes, s) },
			})
			if err != nil {
				t.Fatal(err)
			}
			matched := 0
			for _, s := range stacks(t, path) {
				if err := proc.Chain.Match(s.names); err == nil {
					matched += s.count
				}
			}
			if matched < 20 || matched*100 < int(out.Stats.Samples)*99 {
				t.Errorf("%d of %d stacks match; %q", matched, out.Stats.Samples, notes)
			}
		})
	}
}

// startInOrder starts a program whose addresses are not randomised.
func startInOrder(t *testing.T, path string) *programs.Process {
	t.Helper()
	const addrNoRandomize = 0x0040000 // linux/personality.h
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
	if errno == 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_PERSONALITY, before|addrNoRandomize, 0, 0)
	}
	if errno != 0 {
		t.Skipf("personality: %v", errno)
	}
	defer unix.RawSyscall(unix.SYS_PERSONALITY, before, 0, 0)
	return programs.Start(t, path, 20)
}

// A stack with the functions in it, innermost first.
type stack struct {
	names []string
	count int
}

// stacks reads the stacks of a recording with its own reader, without the names of the kernel's functions,
// which take longer to read.
func stacks(t *testing.T, path string) (list []stack) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{Kallsyms: os.DevNull}), profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Samples {
		var names []string
		for n := s.Node; n > 0; n = p.Nodes[n].Parent {
			if f := p.Frames[p.Nodes[n].Frame]; f.Kind != profile.Kernel {
				names = append(names, f.Name)
			}
		}
		if len(names) > 0 {
			list = append(list, stack{names, int(s.Count)})
		}
	}
	return list
}
