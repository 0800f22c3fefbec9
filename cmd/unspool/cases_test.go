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

	"unspool/capture/profile"
	"unspool/testdata/programs"
	"unspool/unwind"
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

// wholeCounted expects every stack of a counted recording to be complete, for programs whose names cannot be read.
func (r recording) wholeCounted(t testing.TB) {
	t.Helper()
	r.whollyComplete(t)
	if r.stats.Samples.User < counted || r.stats.Samples.Lost > 0 {
		t.Errorf("%+v, of a program that was counted %d times", r.stats.Samples, counted)
	}
}

// recordCountedCommandWith is recordCountedCommand with options.
func recordCountedCommandWith(t testing.TB, options []string, path string, args ...string) (recording, programs.Chain) {
	t.Helper()
	r := record(t, slices.Concat(programs.Faults(), options, []string{"--", path, programs.Times(counted)}, args)...)
	chain, err := programs.ParseChain(firstLine(r.stdout))
	if err != nil {
		t.Fatal(err)
	}
	return r, chain
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
		{"shared and linked to a high address", "exception", []string{"-pie", "-Wl,-Ttext-segment=0x7f0000000000"},
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
			proc := programs.StartCounted(t, programs.Build(t, c.program, c.flags...), counted)
			r := recordCounted(t, proc)
			matchCounted(t, r, proc.Chain, p)
			r.whollyComplete(t)
		})
	}
}

// TestNoSectionHeaders records a program that has only segments. Its CFI is found by PT_GNU_EH_FRAME; gcc
// leaves that out of static programs, where the CFI is found by its contents. The program has no names.
func TestNoSectionHeaders(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flags := range [][]string{nil, {"-static"}, {"-static", "-Wl,--eh-frame-hdr"}, {"-static-pie"}} {
		name := strings.ReplaceAll(strings.Join(append(flags, "program"), " "), ",", " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := programs.Build(t, "exception", flags...)
			dropSectionHeaders(t, path)
			r := recordCounted(t, programs.StartCounted(t, path, counted))
			r.whollyComplete(t)
			// There may be some without CFI in samples at the program's end, but none in those that are counted.
			if by := r.stats.Unwind.FramesBy; by["cfi"]+by["sample"]+counted <= r.stats.Unwind.Frames {
				t.Errorf("frames by: %v", by)
			}
			// The frames are those of the same program with names.
			with := programs.StartCounted(t, programs.Build(t, "exception", flags...), counted)
			named := recordCounted(t, with)
			matchCounted(t, named, with.Chain, programs.Program{Name: "exception"})
			pc, want := countedFrames(t, ownProfile(t, named.path), func(f profile.Frame) bool {
				return f.Name == with.Chain.Leaf()
			})
			_, got := countedFrames(t, ownProfile(t, r.path), func(f profile.Frame) bool { return f.PC == pc })
			if got != want {
				t.Errorf("frames at %#x, with section headers at %#x", got, want)
			}
		})
	}
}

// countedFrames returns the stack that was counted in a program, as the file's addresses from the leaf on. Its leaf is
// as wanted.
func countedFrames(t *testing.T, p *profile.Profile, leaf func(profile.Frame) bool) (pc uint64, stack string) {
	t.Helper()
	stacks := make(map[string]int)
	for _, s := range p.Samples {
		if f := p.Frames[p.Nodes[s.Node].Frame]; !leaf(f) {
			continue
		} else {
			pc = f.PC
		}
		var own []string
		for node := s.Node; node > 0; node = p.Nodes[node].Parent {
			own = append(own, fmt.Sprintf("%#x", p.Frames[p.Nodes[node].Frame].PC))
		}
		stack = strings.Join(own, " ")
		stacks[stack] += int(s.Count)
	}
	if len(stacks) != 1 || stacks[stack] != counted {
		t.Errorf("the counted stacks: %v", stacks)
	}
	return pc, stack
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
	path := memfdOf(t, buildCase(t, "stays.c"))
	t.Run("that runs", func(t *testing.T) {
		recordStaying(t, programs.StartCounted(t, path, counted)).wholeCounted(t)
	})
	t.Run("from its first instruction", func(t *testing.T) {
		recordStayingCommand(t, path).wholeCounted(t)
	})
}

// TestProgramOnOverlayfs records a program on an overlay that only it sees:
// records and maps name other devices there than fstat does.
func TestProgramOnOverlayfs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	programs.NeedMounts(t)
	for _, c := range []struct{ name, touch string }{
		{"in the lower layer", ":"},
		{"copied to the upper layer", "touch merged/stays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			built, dir := buildCase(t, "stays.c"), t.TempDir()
			script := filepath.Join(dir, "start")
			// On a tmpfs: an overlay on an overlay need not be possible.
			text := "#!/bin/sh\nexec unshare -m sh -c 'mkdir " + dir + "/m && mount -t tmpfs none " + dir +
				"/m && cd " + dir + "/m && mkdir lower upper work merged && cp " + built +
				" lower/ && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged || exit 77; " +
				c.touch + "; [ \"$1\" = try ] || exec " + dir + "/m/merged/stays \"$@\"' sh \"$@\"\n"
			if err := writeProgram(script, []byte(text)); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if out, err := exec.Command(script, "try").CombinedOutput(); errors.As(err, &exit) && exit.ExitCode() == 77 {
				t.Skipf("overlayfs cannot be mounted: %s", bytes.TrimSpace(out))
			}
			os.Remove(filepath.Join(dir, "m"))
			recordStaying(t, programs.StartCounted(t, script, counted)).wholeCounted(t)
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
				proc := programs.StartCounted(t, buildCase(t, "frames.c", "-DSIZE="+strconv.Itoa(size), flag), counted)
				// What is missing would be read from the process otherwise.
				r := recordCounted(t, proc, "--stack-size", "65528", "--no-join")
				if size < 60<<10 {
					matchCounted(t, r, proc.Chain, programs.Program{Name: "frames"})
					r.whollyComplete(t)
					continue
				}
				// The caller is not in the copy, and the summary says so. By BP, it may as well be on another stack.
				why := unwind.DumpTooShort
				if flag == "-fno-omit-frame-pointer" {
					why = unwind.NotCopied
				}
				own := ownProfile(t, r.path)
				short := 0
				for _, s := range own.Samples {
					switch stack := userStack(own, s.Node); {
					case len(stack) == 0 || stack[0] != "frames_leaf":
					case slices.Equal(stack, []string{"frames_leaf", "frames_large"}) &&
						s.End == profile.Ended(why):
						short += int(s.Count)
					default:
						t.Errorf("%d samples, ended %v: %s", s.Count, s.End, describe(own, s.Node))
					}
				}
				if ended := r.stats.Unwind.Ended[why.String()]; short != counted || ended < counted {
					t.Errorf("%d stacks end at the frame, of %d; ended: %v", short, counted, r.stats.Unwind.Ended)
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
			r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "8192", "--", path,
				programs.Times(counted), how})...)
			r.whollyComplete(t)
			chain, err := programs.ParseChain(firstLine(r.stdout))
			if err != nil {
				t.Fatal(err)
			}
			matchCounted(t, r, chain, programs.Program{Name: "forks"})
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
			r := record(t, slices.Concat(programs.Faults(), []string{"--", buildCase(t, "threadexec.c", flags...),
				programs.Times(counted)})...)
			r.whollyComplete(t)
			matchCounted(t, r, programs.Chain{Kind: programs.Main, Frames: []string{"main", "after_leaf"}},
				programs.Program{Name: "threadexec"})
		})
	}
}

// TestLibrariesThatComeAndGo records a program that maps one library in the place of another, over and over.
func TestLibrariesThatComeAndGo(t *testing.T) {
	t.Parallel()
	needRoot(t)
	library := func(size, pad string) string {
		return buildCase(t, "reload_lib.c", "-fPIC", "-shared", "-DSIZE="+size, `-DPAD="`+pad+`"`)
	}
	one, two := library("64", "0x10"), library("4000", "0x777")
	path := buildCase(t, "libraries.c")
	p := programs.Program{Name: "libraries"}
	t.Run("from the first instruction", func(t *testing.T) {
		t.Parallel()
		r, chain := recordCountedCommand(t, path, one, two)
		r.whollyComplete(t)
		matchCounted(t, r, chain, p)
	})
	t.Run("that runs", func(t *testing.T) {
		t.Parallel()
		proc := programs.StartCounted(t, path, counted, one, two)
		r := recordCounted(t, proc)
		r.whollyComplete(t)
		matchCounted(t, r, proc.Chain, p)
	})
}

// TestClonedTask records a task on a stack of its own, in the memory of
// another process.
func TestClonedTask(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r, chain := recordCountedCommand(t, buildCase(t, "cloned.c"))
	r.whollyComplete(t)
	matchCounted(t, r, chain, programs.Program{Name: "cloned"})
}
