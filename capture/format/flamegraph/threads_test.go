package flamegraph

import (
	"fmt"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/testdata/browser"
)

// build is a build: 600 shells, of which 500 become compilers, and a linker whose main thread has no sample.
func build() *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "program"}}, Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
		Frames: []profile.Frame{{Name: "main", Known: true}, {Name: "compile", PC: 1, Known: true},
			{Name: "link", PC: 2, Known: true}},
	})
	for pid := uint32(1000); pid < 1600; pid++ {
		p.Add(profile.Thread{PID: pid, TID: pid, Comm: "sh"}, 0, 1, 0)
		if pid < 1500 {
			p.Add(profile.Thread{PID: pid, TID: pid, Comm: "cc1"}, 0, 4, 0, 1)
		}
	}
	for tid := uint32(2001); tid < 2005; tid++ {
		p.Add(profile.Thread{PID: 2000, TID: tid, Comm: fmt.Sprint("worker ", tid-2000), Program: "ld"}, 0, 100, 0, 2)
	}
	return p.Profile
}

func TestPickerInABrowser(t *testing.T) {
	p := open(t, build(), Options{})
	list := func(want string) {
		t.Helper()
		have := browser.Eval[string](p.Page, "[...document.querySelectorAll('#thread-list li')].map(e => "+
			"'>'.repeat(e.dataset.depth) + e.textContent).slice(0, 6).join('; ')")
		if have != want {
			t.Errorf("the list is %q, want %q", have, want)
		}
	}
	total := func(want string) {
		t.Helper()
		p.MoveTo(p.frame(0, 0.5))
		p.text("#tip table tr", "total100 %"+want)
		p.MoveTo(5, 5)
	}
	p.text("#thread", "All threads (1,104)")
	p.Click("[popovertarget=threads]")
	list("All threads1,104100 %; ▸cc1500 processes66.7 %; ▸sh600 processes20.0 %; ▸ld200013.3 %")

	// All processes of a program, found by name.
	p.Press("CC")
	list("")
	p.text("#thread-rest", "none is called so")
	p.Press(browser.Backspace + browser.Backspace + "cc")
	list("▸cc1500 processes66.7 %")
	p.Press(browser.Enter)
	p.text("#thread", "all cc1")
	total("2,000")

	// A process, by its number: it was two programs.
	p.Click("[popovertarget=threads]")
	p.Press("1234")
	list("▸cc1500 processes66.7 %; >cc112340.13 %; ▸sh600 processes20.0 %; >sh12340.03 %")
	p.Press(browser.Enter)
	p.text("#thread", "cc1 (1234)")
	total("4")

	// Threads, below their process; what is too much for the list is told.
	p.Click("[popovertarget=threads]")
	p.Press("worker 2")
	list("▸ld200013.3 %; >worker 22000/20023.33 %")
	p.Press(browser.Enter)
	total("100")
	p.Click("[popovertarget=threads]")
	p.Click("#thread-list li:nth-child(3) .fold")
	list("All threads1,104100 %; ▸cc1500 processes66.7 %; ▾sh600 processes20.0 %; >sh10000.03 %; " +
		">sh10010.03 %; >sh10020.03 %")
	p.text("#thread-rest", "and 204 more: search for a name or a number")
	p.Press(browser.Escape)
	p.Until("!document.querySelector('#threads').matches(':popover-open')")
	total("100")
}
