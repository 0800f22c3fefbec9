package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/rights/priority"
	"unspool/testdata/lane"
)

// breaking is the program that leaves functions and enters them again at the same place all the time.
func breaking(t *testing.T) string {
	t.Helper()
	need(t, "gcc")
	program := filepath.Join(t.TempDir(), "breakjoins")
	source := filepath.Join("..", "..", "bench", "workloads", "work", "breakjoins.c")
	if text, err := exec.Command("gcc", "-O2", "-pthread", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return program
}

// TestMachineRestIsReadWhenSampled records a program whose callers alternate at the same places so often that
// nothing can be said of a sample by what is seen before it and after it. Its stacks, which small copies do
// not hold, are complete all the same, unless that is turned off.
func TestMachineRestIsReadWhenSampled(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	if what, ok := priority.Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	program := breaking(t)
	for _, c := range []struct {
		mode string
		args []string
		read bool
	}{
		{"callers", nil, true},
		{"callers", []string{"--no-sandbox"}, true},
		{"callers", []string{"-a"}, true},
		{"gaps", nil, true},
		{"largeframe", nil, true},
		{"callers", []string{"--no-join"}, false},
		{"callers", []string{"--strict"}, false},
	} {
		t.Run(strings.Join(append([]string{c.mode}, c.args...), " "), func(t *testing.T) {
			args := append([]string{"--stack-size", "8192"}, c.args...)
			r := record(t, append(args, "--", program, c.mode, "100", "1500")...)
			of := r.stats.Unwind
			user := r.stats.Samples.User
			if slices.Contains(c.args, "-a") { // of which others have some, that are not to be read
				user, of.Complete = endsOf(t, r, filepath.Base(program))
			}
			lane.Figure(t, "%s: %d of %d complete, %d read", t.Name(), of.Complete, user, of.Read)
			if user < 300 {
				t.Fatalf("%d samples", user)
			}
			if c.read && (of.Read*2 < user || of.Complete*100 < user*85) {
				t.Errorf("%d of %d complete, %d of them read", of.Complete, user, of.Read)
			}
			if !c.read && (of.Read > 0 || of.Complete*2 > user) {
				t.Errorf("%d of %d complete, %d of them read", of.Complete, user, of.Read)
			}
			if r.stats.Samples.Lost > 0 {
				t.Errorf("%d lost", r.stats.Samples.Lost)
			}
		})
	}
}

// endsOf counts the user stacks of a program in a recording of all, and those that are complete.
func endsOf(t *testing.T, r recording, program string) (user, complete uint64) {
	t.Helper()
	p := ownProfile(t, r.path)
	for _, s := range p.Samples {
		if p.Threads[s.Thread].Comm != program || s.End == profile.Unsaid {
			continue
		}
		user += s.Count
		if s.End == profile.Complete || s.End == profile.Joined {
			complete += s.Count
		}
	}
	return user, complete
}

// growing is a Go program that gives one goroutine after the other a deep stack. It skips the test where
// stacks cannot be read when they are sampled.
func growing(t *testing.T) string {
	t.Helper()
	needRoot(t)
	need(t, "go")
	if what, ok := priority.Try(); !ok {
		t.Skipf("skipped for want of real-time priority: %s", what)
	}
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", "..", "bench", "workloads", "work", "growing.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	source, program := filepath.Join(dir, "growing.go"), filepath.Join(dir, "growing")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, dir, "go", "build", "-o", program, source)
	return program
}

// TestMachineGoroutinesThatGrow records a Go program whose goroutines get larger stacks all the time. That is done
// on the stack of Go's scheduler, and nothing in the copy says where the goroutine's is.
func TestMachineGoroutinesThatGrow(t *testing.T) {
	lane.Machine(t, 0.95)
	program := growing(t)
	const grow = "exec $0 0 1500"
	for _, c := range []struct{ name, size, run string }{
		{"8 KiB", "8192", grow},
		{"32 KiB", "32768", grow},
		{"after other work", "32768", "timeout 1.3 sh -c 'while :; do :; done'; " + grow},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := record(t, "--stack-size", c.size, "-F", "1999", "--", "sh", "-c", c.run, program)
			growing, found, other := 0, 0, make(map[string]int)
			own := ownProfile(t, r.path)
			for _, s := range own.Samples {
				names := userStack(own, s.Node)
				at := slices.Index(names, "runtime.morestack.abi0")
				if at < 0 || !slices.Contains(names, "runtime.copystack") {
					continue
				}
				n := int(s.Count)
				growing += n
				switch callers := names[at+1:]; {
				case len(callers) == 0:
				case growingChain(callers):
					found += n
				default:
					other[strings.Join(callers, " ")] += n
				}
			}
			lane.Figure(t, "%d of %d stacks of goroutines that get a larger one have their callers; ended: %v", found,
				growing, r.stats.Unwind.Ended)
			if growing < enough/2 || found*100 < growing*80 {
				t.Errorf("%d of %d have their callers", found, growing)
			}
			if len(other) > 0 {
				t.Errorf("callers that are none: %v", other)
			}
		})
	}
}

// TestMachineGoroutinesByTurns records one goroutine after the other, each with a deep stack of its own: where the
// last one's ended says nothing of the next one's. Without that, four of ten are read, as the kernel follows
// frame pointers in others.
func TestMachineGoroutinesByTurns(t *testing.T) {
	lane.Machine(t, 0.95)
	r := record(t, "--stack-size", "8192", "-F", "999", "--", growing(t), "100", "1500")
	of, user := r.stats.Unwind, r.stats.Samples.User
	lane.Figure(t, "%d of %d complete, %d read", of.Complete, user, of.Read)
	if of.Read*100 < user*48 || of.Complete*100 < user*85 {
		t.Errorf("%d of %d complete, %d of them read", of.Complete, user, of.Read)
	}
}

// growingChain reports whether names are callers of a function of that program, the innermost first.
func growingChain(names []string) bool {
	if n := len(names); n > 1 && names[n-2] == "runtime.main" {
		return !slices.Contains(names, "main.deep")
	}
	for len(names) > 0 && !strings.HasPrefix(names[0], "main.") { // of Go's library
		names = names[1:]
	}
	for len(names) > 0 && (names[0] == "main.deep" || names[0] == "main.spin") {
		names = names[1:]
	}
	if len(names) > 2 && (names[0] == "main.one" || names[0] == "main.two") {
		names = names[1:]
	}
	return slices.Equal(names, []string{"main.main.func1", "runtime.goexit.abi0"})
}
