package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

// buildCase compiles a program from testdata and returns its path. The sources
// are written like those of the package programs.
func buildCase(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return programs.BuildFile(t, filepath.Join("testdata", source), flags...)
}

// whole expects 99 % of the stacks to be complete.
func (r *recording) whole(t *testing.T) {
	t.Helper()
	if r.stats.Samples.User < enough {
		t.Fatalf("%d samples", r.stats.Samples.User)
	}
	t.Logf("%d samples, ended: %v, frames by: %v", r.stats.Samples.User, r.stats.Unwind.Ended,
		r.stats.Unwind.FramesBy)
	if r.stats.incomplete() > 0.01 {
		t.Errorf("of %d stacks ended: %v\n%s", r.stats.Samples.User, r.stats.Unwind.Ended, r.stderr)
	}
}

// matchLeaves compares the stacks of a recording that have the chain's leaf with the chain.
func matchLeaves(t *testing.T, r recording, chain programs.Chain) {
	t.Helper()
	own := ownProfile(t, r.path)
	var samples, matched int
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if !slices.Contains(stack, chain.Leaf()) {
			continue
		}
		samples += int(s.Count)
		if err := chain.Match(stack); err == nil {
			matched += int(s.Count)
		} else {
			t.Log(err)
		}
	}
	t.Logf("%d of %d stacks match the chain", matched, samples)
	if samples < enough || matched*100 < samples*99 {
		t.Errorf("%d of %d stacks match the chain", matched, samples)
	}
}

// TestLinkersLayouts records programs whose layout in the file and in memory is not the linkers' default.
func TestLinkersLayouts(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, c := range []struct {
		name    string
		program string
		flags   []string
		needs   string
	}{
		{"code in the segment of the headers", "exception", []string{"-Wl,-z,noseparate-code"}, ""},
		{"code in a segment of its own", "exception", []string{"-Wl,-z,separate-code"}, ""},
		{"segments at huge pages", "qsort",
			[]string{"-Wl,-z,max-page-size=0x200000", "-Wl,-z,common-page-size=0x200000"}, ""},
		{"linked to a high address", "exception", []string{"-no-pie", "-Wl,-Ttext-segment=0x10000000"}, ""},
		{"linked to a high address, shared", "exception", []string{"-pie", "-Wl,-Ttext-segment=0x7f0000000000"},
			""},
		{"functions in executable segments of their own", "qsort",
			[]string{"-no-pie", "-fno-pie", "-ffunction-sections",
				"-Wl,--unique=.text.*", "-Wl,--section-start=.text.qsort_compare=0x20000000",
				"-Wl,--section-start=.text.qsort_leaf=0x70000000"}, ""},
		{"by gold", "exception", []string{"-fuse-ld=gold"}, "ld.gold"},
		{"by lld", "exception", []string{"-fuse-ld=lld"}, "ld.lld"},
		{"static without .eh_frame_hdr", "qsort", []string{"-static", "-Wl,--no-eh-frame-hdr"}, ""},
		{"static-pie without .eh_frame_hdr", "qsort", []string{"-static-pie", "-Wl,--no-eh-frame-hdr"}, ""},
		{"dynamic without .eh_frame_hdr", "qsort", []string{"-Wl,--no-eh-frame-hdr"}, ""},
		{"without a build ID", "exception", []string{"-Wl,--build-id=none"}, ""},
		{"with .debug_frame only", "qsort", []string{"-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"},
			""},
		{"with compressed .debug_frame only", "qsort",
			[]string{"-g", "-gz=zlib", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}, ""},
		{"PLT for IBT", "plt", []string{"-fcf-protection=full", "-Wl,-z,ibtplt"}, ""},
		{"lazy PLT for IBT", "lazy", []string{"-fcf-protection=full", "-Wl,-z,ibtplt"}, ""},
		{"PLT bound at the start", "plt", []string{"-Wl,-z,now"}, ""},
		{"no PLT", "plt", []string{"-fno-plt"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.needs != "" {
				need(t, c.needs)
			}
			p := programs.Program{Name: c.program}
			proc := programs.Start(t, programs.Build(t, c.program, c.flags...), 20)
			matchChain(t, recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid)), proc.Chain, p)
		})
	}
}

// TestNoSectionHeaders records a program that has only segments. Its CFI is found by PT_GNU_EH_FRAME; gcc
// leaves that out of static programs, where the CFI is found by its contents. The program has no names.
func TestNoSectionHeaders(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flags := range [][]string{nil, {"-static"}, {"-static", "-Wl,--eh-frame-hdr"}, {"-static-pie"}} {
		t.Run(strings.Join(append(flags, "program"), " "), func(t *testing.T) {
			path := programs.Build(t, "exception", flags...)
			dropSectionHeaders(t, path)
			proc := programs.Start(t, path, 20)
			r := recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid))
			r.whole(t)
			if n := r.stats.Unwind.FramesBy["cfi"] + r.stats.Unwind.FramesBy["sample"]; n != r.stats.Unwind.Frames {
				t.Errorf("frames by: %v", r.stats.Unwind.FramesBy)
			}
			// The frames are as many as those of the same program with names.
			named := programs.Start(t, programs.Build(t, "exception", flags...), 20)
			with := recordEnough(t, "-p", strconv.Itoa(named.Process.Pid))
			if a, b := meanDepth(r), meanDepth(with); a < b-0.2 || a > b+0.2 {
				t.Errorf("%.2f frames a stack, with section headers %.2f", a, b)
			}
		})
	}
}

func meanDepth(r recording) float64 {
	return float64(r.stats.Unwind.Frames) / float64(r.stats.Samples.User)
}

// dropSectionHeaders clears e_shoff, e_shnum and e_shstrndx of a 64-bit ELF file.
func dropSectionHeaders(t testing.TB, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(content[0x28:0x30])
	clear(content[0x3c:0x40])
	if err := writeProgram(path, content); err != nil {
		t.Fatal(err)
	}
}

// memfdOf copies a program into memory that has a name only in /proc, and
// returns that name, which is valid until the test ends.
func memfdOf(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock() // see writeProgram
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skipf("memfd_create: %v", err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	// What is open for writing cannot be executed.
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), again.Fd())
}

// TestProgramInMemfd records a program that is in no file system.
func TestProgramInMemfd(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := memfdOf(t, programs.Build(t, "qsort"))
	t.Run("that runs", func(t *testing.T) {
		proc := programs.Start(t, path, 20)
		r := recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid))
		r.whole(t)
	})
	t.Run("from its first instruction", func(t *testing.T) {
		r := recordEnough(t, "--", path, "20")
		r.whole(t)
	})
}

// TestProgramOnOverlayfs records a program on an overlay that only it sees:
// records and maps name other devices there than fstat does.
func TestProgramOnOverlayfs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "unshare", "mount")
	for _, c := range []struct{ name, touch string }{
		{"in the lower layer", ":"},
		{"copied to the upper layer", "touch merged/qsort"},
	} {
		t.Run(c.name, func(t *testing.T) {
			built, dir := programs.Build(t, "qsort"), t.TempDir()
			script := filepath.Join(dir, "start")
			// On a tmpfs: an overlay on an overlay need not be possible.
			text := "#!/bin/sh\nexec unshare -m sh -c 'mkdir " + dir + "/m && mount -t tmpfs none " + dir +
				"/m && cd " + dir + "/m && mkdir lower upper work merged && cp " + built +
				" lower/ && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged || exit 77; " +
				c.touch + "; exec " + dir + "/m/merged/qsort \"$@\"' sh \"$@\"\n"
			if err := writeProgram(script, []byte(text)); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if out, err := exec.Command(script, "1").CombinedOutput(); errors.As(err, &exit) && exit.ExitCode() == 77 {
				t.Skipf("overlayfs cannot be mounted: %s", bytes.TrimSpace(out))
			}
			os.Remove(filepath.Join(dir, "m"))
			proc := programs.Start(t, script, 20)
			r := recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid))
			r.whole(t)
		})
	}
}

// TestLargeFrames records programs whose leaf lies below a frame that is
// larger than any copy of a stack, than most, and than few.
func TestLargeFrames(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, size := range []int{40 << 10, 600 << 10, 5 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			for _, flag := range []string{"-fomit-frame-pointer", "-fno-omit-frame-pointer"} {
				proc := programs.Start(t, buildCase(t, "frames.c", "-DSIZE="+strconv.Itoa(size), flag), 20)
				// What is missing would be read from the process otherwise.
				r := recordEnough(t, "--stack-size", "65528", "--no-join", "-p", strconv.Itoa(proc.Process.Pid))
				if size < 60<<10 {
					matchChain(t, r, proc.Chain, programs.Program{Name: "frames"})
					continue
				}
				// The caller is not in the copy, and the summary says so.
				if short := r.stats.Unwind.Ended["dump_too_short"]; r.stats.Samples.User < enough ||
					short*100 < r.stats.Samples.User*99 {
					t.Errorf("%d samples, ended: %v", r.stats.Samples.User, r.stats.Unwind.Ended)
				}
				own := ownProfile(t, r.path)
				for _, s := range own.Samples {
					if stack := userStack(own, s.Node); slices.Equal(stack, []string{"frames_leaf", "frames_large"}) ||
						len(stack) == 0 {
						continue
					}
					t.Errorf("%d samples: %s", s.Count, describe(own, s.Node))
				}
			}
		})
	}
}

// TestForkWithoutExec records processes that continue with the memory of their parent, or a copy of it.
func TestForkWithoutExec(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := buildCase(t, "forks.c")
	for _, how := range []string{"fork", "vfork"} {
		t.Run(how, func(t *testing.T) {
			r := recordRuns(t, path, how)
			r.whole(t)
			chain, err := programs.ParseChain(firstLine(r.stdout))
			if err != nil {
				t.Fatal(err)
			}
			matchLeaves(t, r, chain)
		})
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// TestExecInThread records a program whose second thread executes another.
func TestExecInThread(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flags := range [][]string{nil, {"-static"}} {
		t.Run(strings.Join(append(flags, "program"), " "), func(t *testing.T) {
			r := recordRuns(t, buildCase(t, "threadexec.c", flags...))
			r.whole(t)
			matchLeaves(t, r, programs.Chain{Kind: programs.Main, Frames: []string{"main", "after_leaf"}})
		})
	}
}

// TestLibrariesThatComeAndGo records a program that maps one library in the place of another some hundred
// times a second.
func TestLibrariesThatComeAndGo(t *testing.T) {
	t.Parallel()
	needRoot(t)
	library := func(size, pad string) string {
		return buildCase(t, "reload_lib.c", "-fPIC", "-shared", "-DSIZE="+size, `-DPAD="`+pad+`"`)
	}
	one, two := library("64", "0x10"), library("4000", "0x777")
	path := buildCase(t, "reload.c")
	t.Run("from the first instruction", func(t *testing.T) {
		r := record(t, "-F", "1999", "--", path, "2", one, two)
		r.whole(t)
		chain, err := programs.ParseChain(firstLine(r.stdout))
		if err != nil {
			t.Fatal(err)
		}
		matchLeaves(t, r, chain)
	})
	t.Run("that runs", func(t *testing.T) {
		proc := programs.Start(t, path, 20, one, two)
		r := recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid))
		r.whole(t)
		matchLeaves(t, r, proc.Chain)
	})
}

// TestClonedTask records a task on a stack of its own, in the memory of
// another process.
func TestClonedTask(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r := recordEnough(t, "--", buildCase(t, "cloned.c"), "20")
	r.whole(t)
	chain, err := programs.ParseChain(firstLine(r.stdout))
	if err != nil {
		t.Fatal(err)
	}
	matchLeaves(t, r, chain)
}
