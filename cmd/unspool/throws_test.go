package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// throwsCallers has what may call the functions of a program that throws exceptions all the time. No function of
// its chain is left out: while the registers of the frame that handles an exception are written over those of the
// one that threw it, either the caller is the handling frame, or it is not known.
var throwsCallers = map[string][]string{
	"outer": {"main"}, "left": {"outer"}, "deep": {"left", "deep"}, "thrower": {"deep"},
	"__cxa_throw": {"thrower"}, "guard::~guard": {"left"}, "_Unwind_Resume": {"left", "outer"},
	"_Unwind_RaiseException": {"__cxa_throw", "left"}, // left while the exception is handled there
}

// throwing holds the stacks of that program against what may be, and counts those in which something is thrown.
func throwing(t *testing.T, r recording) (thrown int) {
	t.Helper()
	p := ownProfile(t, r.path)
	for _, s := range p.Samples {
		names := userStack(p, s.Node) // from the leaf
		if slices.Contains(names, "_Unwind_RaiseException") || slices.Contains(names, "_Unwind_Resume") {
			thrown += int(s.Count)
		}
		for i := range len(names) - 1 {
			callers := throwsCallers[names[i]]
			if callers != nil && !slices.Contains(callers, names[i+1]) ||
				names[i] == "thrower" && countOf(names, "deep") != 7 {
				t.Errorf("%d samples: %q", s.Count, names)
				break
			}
		}
	}
	return thrown
}

var throwsFlags = []string{"-fomit-frame-pointer", "-fno-omit-frame-pointer"}

// TestExceptionsUnderWay has a sample at each of the instructions by which the unwinder goes from the frame that threw
// an exception to the one that handles it.
func TestExceptionsUnderWay(t *testing.T) {
	t.Parallel()
	needBreakpoints(t)
	need(t, "objdump")
	const rounds = 3
	for k, flag := range throwsFlags {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			program := buildCase(t, "throws.cc", flag, "-static", "-no-pie", "-fno-pie")
			var addresses []uint64
			for _, function := range []string{"_Unwind_RaiseException", "_Unwind_Resume"} {
				all := listedInstructions(t, program, function)
				for i, in := range all {
					// From the call on that installs the handling frame, each second one.
					if strings.Contains(in.text, "<uw_install_context_1>") {
						for j := i + 1 + k; j < len(all); j += 2 {
							addresses = append(addresses, all[j].at)
						}
					}
				}
			}
			for i, in := range listedInstructions(t, program, "uw_install_context_1") {
				if i%8 == 4*k {
					addresses = append(addresses, in.at)
				}
			}
			if len(addresses) < 20 {
				t.Skipf("this unwinder installs its context in another way: %d instructions", len(addresses))
			}
			thrown := 0
			for some := range slices.Chunk(addresses, 4) {
				var events []string
				for _, at := range some {
					events = append(events, fmt.Sprintf("mem:%#x:x:u", at))
				}
				r := record(t, "--stack-size", "8192", "-e", strings.Join(events, ","), "--", program,
					programs.Times(rounds))
				if r.stats.Samples.Lost > 0 {
					t.Errorf("%d lost", r.stats.Samples.Lost)
				}
				thrown += throwing(t, r)
				for why, n := range r.stats.Unwind.Ended {
					if n > 0 && why != "root" {
						t.Errorf("%d stacks ended with %s", n, why)
					}
				}
			}
			// Some instructions are jumped over.
			if thrown < rounds*len(addresses)/2 {
				t.Errorf("%d samples while something is thrown, at %d instructions", thrown, len(addresses))
			}
		})
	}
}

// TestMachineExceptionsUnderWay records that program anywhere in the unwinder.
func TestMachineExceptionsUnderWay(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	for _, flag := range throwsFlags {
		t.Run(flag, func(t *testing.T) {
			r := record(t, "-F", "4999", "--", buildCase(t, "throws.cc", flag), "3")
			thrown := throwing(t, r)
			lane.Figure(t, "%d of %d samples while something is thrown; ended: %v", thrown, r.stats.Samples.User,
				r.stats.Unwind.Ended)
			r.whole(t)
			if thrown < enough {
				t.Errorf("%d samples while something is thrown", thrown)
			}
			for why, n := range r.stats.Unwind.Ended {
				if flag == "-fomit-frame-pointer" && n > 0 && why != "root" && why != "dump_too_short" {
					t.Errorf("%d stacks ended with %s", n, why)
				}
			}
		})
	}
}

// A listedInstruction is one of a program's, as objdump prints it.
type listedInstruction struct {
	at   uint64
	text string
}

var objdumpLine = regexp.MustCompile(`(?m)^ +([0-9a-f]+):\t(.*)$`)

// listedInstructions are those of a function.
func listedInstructions(t *testing.T, path, function string) (all []listedInstruction) {
	t.Helper()
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", "--disassemble="+function, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range objdumpLine.FindAllSubmatch(out, -1) {
		at, err := strconv.ParseUint(string(m[1]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(m[2]); !strings.HasPrefix(text, "nop") {
			all = append(all, listedInstruction{at, text})
		}
	}
	return all
}

// countOf is how often a name is among others.
func countOf(names []string, name string) (n int) {
	for _, have := range names {
		if have == name {
			n++
		}
	}
	return n
}
