package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unspool/capture/priority"
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

// TestRestIsReadWhenSampled records a program whose callers alternate at the same places so often that
// nothing can be said of a sample by what is seen before it and after it. Its stacks, which small copies do
// not hold, are complete all the same, unless that is turned off.
func TestRestIsReadWhenSampled(t *testing.T) {
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
			t.Logf("%d of %d complete, %d read", of.Complete, user, of.Read)
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
