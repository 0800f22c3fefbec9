package browser

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a page.html")
	const html = `<!doctype html><title>page</title><input id=name autofocus>
<button id=b onclick="document.title='clicked'">b</button>
<button id=bad onclick="console.error('complaint'); throw new Error('thrown')">bad</button>
<button id=net onclick="fetch('http://example.invalid/').catch(()=>{document.title='refused'})">net</button>`
	if err := os.WriteFile(file, []byte(html), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Open(t, file, 640, 480)
	if w := Eval[int](p, "innerWidth"); w != 640 {
		t.Errorf("width %d", w)
	}
	p.Click("#b")
	p.Until("document.title === 'clicked'")
	p.Click("#name")
	p.Press("typed")
	if s := Eval[string](p, "document.querySelector('#name').value"); s != "typed" {
		t.Errorf("the field has %q", s)
	}
	if c := p.Complaints(); len(c) > 0 {
		t.Errorf("complaints %q", c)
	}
	p.Click("#bad")
	p.Click("#net")
	p.Until("document.title === 'refused'")
	all := strings.Join(p.Complaints(), "\n")
	for _, want := range []string{"complaint", "thrown", "example.invalid"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q among the complaints:\n%s", want, all)
		}
	}
	p.Dark(true)
	if !Eval[bool](p, "matchMedia('(prefers-color-scheme: dark)').matches") {
		t.Error("not dark")
	}
	png := filepath.Join(dir, "shot.png")
	p.Screenshot(png)
	data, err := os.ReadFile(png)
	if err != nil || !slices.Equal(data[:4], []byte("\x89PNG")) {
		t.Errorf("no PNG: %v", err)
	}
}

// Pages that are open at the same time do not disturb each other: each is drawn, has the focus, its own size and
// colours.
func TestPagesTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte("<!doctype html><title>page</title><input id=name>"), 0o644); err != nil {
		t.Fatal(err)
	}
	pages := []*Page{Open(t, file, 640, 480), Open(t, file, 320, 240), Open(t, file, 800, 600)}
	pages[1].Dark(true)
	for _, p := range pages {
		p.Click("#name")
		p.Press("typed")
	}
	for i, width := range []float64{640, 320, 800} {
		have := Eval[[]any](pages[i], `new Promise(done => requestAnimationFrame(() => done([
			document.visibilityState, document.hasFocus(), document.querySelector('#name').value, innerWidth,
			matchMedia('(prefers-color-scheme: dark)').matches])))`)
		if want := []any{"visible", true, "typed", width, i == 1}; !slices.Equal(have, want) {
			t.Errorf("page %d: %v, not %v", i, have, want)
		}
	}
}
