package live_test

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"unspool/capture/counts"
	"unspool/capture/live"
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
			flags := append([]string{"-m32"}, p.flags...)
			if p.Name == "signal" { // whose stacks lead through the vDSO, which is read from the process
				flags = append(flags, "-include", stays(t))
			}
			matchCounted(t, programs.StartCounted(t, programs.Build(t, p.Name, flags...), counted, p.Args...), p.Counts)
		})
	}
}

// counted is how often a program is at the end of its chain.
const counted = 20

// stays is the path of a header with which a program does not end.
func stays(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/stays.h")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// matchCounted records a program that is stopped, and compares every stack at the end of its chain with it.
func matchCounted(t *testing.T, proc *programs.Process, counting string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	var notes []string
	out := live.RecordControlled(t, live.Faults(live.Options{
		PIDs: []int{proc.Process.Pid}, StackSize: 65528, MaxStack: 2048, Output: path,
		Note: func(s string) { notes = append(notes, s) },
		Progress: func(st *counts.Stats) {
			if st.User >= counted && st.Ended[unwind.Root] > 0 {
				_ = proc.Process.Kill() // in case that it stays
			}
		},
	}), func(func()) { proc.Continue() })
	matched := 0
	for _, s := range stacks(t, path) {
		if s.names[0] != cmp.Or(counting, proc.Chain.Leaf()) {
			continue
		}
		if err := proc.Chain.Match(s.names); err == nil {
			matched += s.count
		} else {
			t.Errorf("%d samples: %.600v", s.count, err)
		}
	}
	if complete := out.Stats.Ended[unwind.Root]; matched != counted || complete < counted || out.Stats.Lost > 0 {
		t.Errorf("%d of %d stacks match; ended %v; %d lost; %q", matched, counted, out.Stats.Ended, out.Stats.Lost,
			notes)
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
			matchCounted(t, proc, "")
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
	return programs.StartCounted(t, path, counted)
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
