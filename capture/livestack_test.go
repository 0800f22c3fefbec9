package capture

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/unwind"
)

func TestWaitingSP(t *testing.T) {
	for _, c := range []struct {
		text string
		sp   uint64
		ok   bool
	}{
		{"running\n", 0, false},
		{"", 0, false},
		{"-1 0x7ffd5a2e1c08 0x7f1e2d6a1b4b\n", 0x7ffd5a2e1c08, true}, // waits outside of a system call
		{"230 0x0 0x0 0x7ffe 0x0 0x8 0x0 0x7ffd5a2e1c08 0x7f1e2d6a1b4b\n", 0x7ffd5a2e1c08, true},
		{"230 0x0 bad 0x7f1e2d6a1b4b\n", 0, false},
	} {
		if sp, ok := waitingSP([]byte(c.text)); sp != c.sp || ok != c.ok {
			t.Errorf("%q: %#x %v, want %#x %v", c.text, sp, ok, c.sp, c.ok)
		}
	}
}

func TestStartTime(t *testing.T) {
	const fields = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n"
	for _, c := range []struct {
		text  string
		ticks uint64
		ok    bool
	}{
		{"7 (sleep)" + fields, 4711, true},
		{"7 (a) S 1 (b)" + fields, 4711, true}, // the name is the thread's to choose
		{"7 (sleep) S 1 2\n", 0, false},
		{"", 0, false},
	} {
		if ticks, ok := startTime([]byte(c.text)); ticks != c.ticks || ok != c.ok {
			t.Errorf("%q: %d %v, want %d %v", c.text, ticks, ok, c.ticks, c.ok)
		}
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if ticks, ok := startTime(own); !ok || ticks == 0 {
		t.Errorf("%q: %d %v", own, ticks, ok)
	}
}

// TestSightings: each letter is a sample of a thread with what is seen of the thread some time later.
func TestSightings(t *testing.T) {
	type seen struct {
		pid, tid     uint32
		start        uint64
		fixed, above string
	}
	same := seen{7, 8, 100, "frame", "main"}
	kinds := map[rune]seen{
		'a': same,
		'b': {7, 8, 100, "frame", "other"}, // the same handler, another caller
		'C': {7, 8, 100, "FRAME", "main"},  // another handler
		'p': {6, 8, 100, "frame", "main"},  // of another process
		'n': {7, 8, 200, "frame", "main"},  // of a new thread with the old TID
	}
	for _, c := range []struct {
		name, sightings string
		known           bool
	}{
		{"seen often enough", "aaaaaaaaaaaa", true},
		{"not yet", "aaaaaaaaaaa", false},
		{"by turns", "abababababababababababab", false},
		{"another one, once", "aabaaaaaaaaaaaaaaaaa", false},
		{"another handler between", "aaaaaaaaaaaCa", false},
		{"and often enough after that", "Caaaaaaaaaaaa", true},
		{"a PID that is used again", "aaaaaaaaaaap", false},
		{"a TID that is used again", "aaaaaaaaaaan", false},
	} {
		var i interruptedStack
		known := false
		for n, k := range c.sightings {
			s := kinds[k]
			now := uint64(100 * (n + 1))
			i.sampled(s.tid, now-50, &unwind.Stack{})
			fixed := unwind.Piece{Data: []byte(s.fixed)}
			known = i.note(s.pid, s.start, fixed, []byte(s.above), now)
			i.sampled(s.tid, now-49, &unwind.Stack{}) // of the same round: nothing new is seen
			if again := i.note(s.pid, s.start, fixed, []byte(s.above), now+1); again != known {
				t.Errorf("%s: %v, then %v of the same round", c.name, known, again)
			}
		}
		if known != c.known {
			t.Errorf("%s: known: %v, want %v", c.name, known, c.known)
		}
	}
}

// FuzzTextsOfThreads reads what /proc may say of a thread, and what a thread may call itself.
func FuzzTextsOfThreads(f *testing.F) {
	f.Add([]byte("35 0x7ffd 0x0 0x0 0x0 0x0 0x0 0x7ffd1000 0x7f0011\n"), "sh")
	f.Add([]byte("running\n"), "a) S 1 (b")
	for _, text := range inputs.Lines(20, 4<<10, "/proc/[0-9]*/stat", "/proc/[0-9]*/syscall") {
		f.Add(text, "main")
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, text []byte, name string) {
		defer costs.For(len(text) + len(name)).Check(t)()
		if sp, ok := waitingSP(text); ok && sp > 9 && !bytes.ContainsAny(text, "123456789abcdefABCDEF") {
			t.Errorf("%q: SP %#x", text, sp)
		}
		startTime(text)
		// Whatever the name is, it is not read as fields.
		stat := fmt.Appendf(nil, "7 (%s) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 42 20 21", name)
		if ticks, ok := startTime(stat); !ok || ticks != 42 {
			t.Errorf("%q: began at %d, %v", stat, ticks, ok)
		}
	}))
}
