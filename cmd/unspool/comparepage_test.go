package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"unspool/testdata/lane"

	"unspool/capture/verdict/compare"
	"unspool/testdata/browser"
)

// Each compression takes page faults in zlib, for memory that is given back after it.
const zlibProgram = `import zlib
for i in range(20): zlib.compress(b"unspool" * 9999 + bytes(range(256)) * 99)
`

// Frame pointers do not work in Debian's python3: the page shows what --json says.
func TestMachineComparePage(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "/usr/bin/python3")
	dir := t.TempDir()
	page := filepath.Join(dir, "page.html")
	e := unspool(t, dir, "compare", "-q", "--json", "--html", page, "-e", "page-faults:u", "-c", "1", "--",
		"/usr/bin/python3", "-S", "-E", "-c", zlibProgram)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	var r compare.Result
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
		t.Fatal(err)
	}
	// What was measured are 40 frames of 2 KiB: a callchain has 8 bytes for each, a copy of the stack is as
	// long as was asked for.
	if c := r.Cost; c == nil || c.StackSize != 65528 || c.Chain.Bytes < 40*8 || c.Chain.Bytes > 4096 ||
		c.Stack.Bytes < 60000 {
		t.Errorf("cost: %+v", c)
	}
	p := browser.Open(t, page, 1400, 900)
	p.Until("document.documentElement.dataset.ready")
	for key, c := range r.Classes {
		want := fmt.Sprintf("%.1f\u00a0%%", 100*c.Share)
		switch {
		case c.Samples == 0:
			want = "·"
		case c.Share < 0.0005 || c.Share >= 0.9995 && c.Share < 1:
			continue // written in another way
		}
		p.Shows(".class[data-key="+key+"] .share", want)
	}
	p.Until("document.querySelector('#strip .programs').textContent.startsWith('python3')")
	p.Click("#blame-functions tbody tr:first-child .fn")
	p.Until("document.querySelector('#left .caption .found').textContent.endsWith('matched')")
	for _, c := range p.Complaints() {
		t.Error(c)
	}
}
