package capture

import "testing"

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
