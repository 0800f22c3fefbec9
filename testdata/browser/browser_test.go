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
