// Package browser opens pages in headless Chromium for tests: it clicks and types as a reader would, asks the page what it shows, and
// notes what the page complains of. Only tests import it.
package browser

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds what a test does with one page.
const patience = 60 * time.Second

// Page is a tab of a browser of its own, which ends with the test. What fails fails the test.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// Open starts Chromium with a window of so many CSS pixels and no network, and opens the file in it. Without Chromium the test is
// skipped.
func Open(t testing.TB, file string, width, height int) *Page {
	t.Helper()
	path := chromium(t)
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.WindowSize(width, height),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.ProxyServer("127.0.0.1:9"), // nobody listens there: a page that fetches anything complains
		chromedp.Flag("allow-file-access-from-files", true),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, end := context.WithTimeout(context.Background(), patience)
	t.Cleanup(end)
	ctx, end = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end) // waits for the browser
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	p := &Page{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatalf("chromium: %v", err)
	}
	p.Do(
		chromedp.EmulateViewport(int64(width), int64(height)),
		chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()),
	)
	return p
}

func chromium(t testing.TB) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium")
	return ""
}

// listen notes errors and warnings on the console, and exceptions that nothing caught.
func (p *Page) listen(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != "error" && e.Type != "warning" && e.Type != "assert" {
			return
		}
		text = string(e.Type)
		for _, a := range e.Args {
			text += " " + string(a.Value) + a.Description
		}
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != "error" && e.Entry.Level != "warning" {
			return
		}
		text = e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, text)
}

// Complaints are the page's errors and warnings so far.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

// Do does what chromedp offers: wait for an element, send keys, move the mouse.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, chromedp.Steps(actions...))
}

func run[T any](p *Page, a chromedp.Action[T]) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, a)
	if err != nil {
		p.t.Fatalf("chromium: %v; the page complains of %q", err, p.Complaints())
	}
	return v
}

// Click clicks the middle of the element that the CSS selector finds.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.Do(chromedp.Click(selector))
}

// ClickAt moves the mouse to a point of the window, in CSS pixels, and clicks.
func (p *Page) ClickAt(x, y float64) {
	p.t.Helper()
	p.MoveTo(x, y)
	p.Do(chromedp.MouseClickXY(x, y))
}

// MoveTo moves the mouse to a point of the window, in CSS pixels.
func (p *Page) MoveTo(x, y float64) {
	p.t.Helper()
	p.Do(chromedp.MouseEvent("mouseMoved", x, y))
}

// Press sends keys to what has the focus: text, or kb.Enter and the like of chromedp/kb.
func (p *Page) Press(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	p.Do(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

// Eval evaluates JavaScript in the page, awaiting a promise, and returns its value.
func Eval[T any](p *Page, script string) T {
	p.t.Helper()
	return run(p, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Shows waits until the first element that the CSS selector finds has a text.
func (p *Page) Shows(selector, want string) {
	p.t.Helper()
	have := "document.querySelector(" + Quote(selector) + ")?.textContent"
	if !Eval[bool](p, `new Promise(done => {
		const began = performance.now();
		const look = () => `+have+` === `+Quote(want)+` ? done(true) : performance.now() - began > 3000 ? done(false) : setTimeout(look, 20);
		look();
	})`) {
		p.t.Errorf("%s says %q, not %q", selector, Eval[string](p, have+" ?? 'nothing'"), want)
	}
}

// Quote makes a JavaScript string.
func Quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Until waits until a JavaScript expression is true.
func (p *Page) Until(script string) {
	p.t.Helper()
	p.Do(chromedp.Poll[chromedp.Void](script, chromedp.WithPollingTimeout(patience/4)))
}

// Dark shows the page to somebody who prefers dark colours, or light ones.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		p.t.Fatalf("chromium: %v", err)
	}
}

// Screenshot writes what the window shows to a PNG.
func (p *Page) Screenshot(file string) {
	p.t.Helper()
	if err := os.WriteFile(file, run(p, chromedp.CaptureScreenshot()), 0o644); err != nil {
		p.t.Fatal(err)
	}
}
