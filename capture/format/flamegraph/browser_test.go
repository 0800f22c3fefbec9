package flamegraph

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/testdata/browser"
)

// opened is a profile's page or picture in a browser.
type opened struct {
	*testing.T
	*browser.Page
}

func open(t *testing.T, p *profile.Profile, o Options) opened {
	t.Helper()
	page := opened{t, browser.Open(t, write(t, p, o), 1200, 800)}
	if o.Format == HTML {
		page.Until("document.documentElement.dataset.ready")
	}
	t.Cleanup(func() {
		if c := page.Complaints(); len(c) > 0 {
			t.Errorf("the page complains: %q", c)
		}
	})
	return page
}

// text waits until an element has a text.
func (p opened) text(selector, want string) {
	p.Helper()
	p.Shows(selector, want)
}

// choose chooses an option.
func (p opened) choose(selector, value string) {
	p.Helper()
	p.SetValue(selector, value)
	browser.Eval[bool](p.Page, "document.querySelector("+browser.Quote(selector)+
		").dispatchEvent(new Event('change'))")
}

// pick chooses the first thread, process or program that is found.
func (p opened) pick(search string) {
	p.Helper()
	p.Click("[popovertarget=threads]")
	if search != "" {
		p.Press(search)
	}
	p.Press(browser.Enter)
}

// frame is the position in the window of a row of the graph, at a share of its width, after the graph has
// stopped moving.
func (p opened) frame(row int, share float64) (x, y float64) {
	p.Helper()
	left, top, width := p.Box("#graph")
	return left + width*share, top + 19*(float64(row)+0.5)
}

func TestPageInABrowser(t *testing.T) {
	p := open(t, example(), Options{Title: hostile})
	p.text("h1", human.Printable(hostile))
	p.text(".origin", "unspool record -- "+human.Printable(hostile)+" · host")
	const legend = "[...document.querySelectorAll('#legend li:not([hidden])')].map(e => " +
		"e.textContent).join(', ')"
	const words = "user 51.0 %, inlined 20.0 %, JIT 15.0 %, kernel 10.0 %, unmapped 4.00 %"
	if have := browser.Eval[string](p.Page, legend); have != words {
		t.Errorf("legend: %s", have)
	}
	// A colour is explained by all of its shades.
	if have := browser.Eval[int](p.Page, `new Set(getComputedStyle(document.querySelector('[data-word=user] i'))
		.backgroundImage.match(/rgb\([^)]*\)/g)).size`); have != shades {
		t.Errorf("%d shades in the legend", have)
	}

	// The numbers of the frame under the pointer: below main, 96 % wide, qsort comes first.
	p.MoveTo(p.frame(2, 0.25))
	p.text("#tip .name", "qsort")
	p.text("#tip table", "total50.0 %500self0 %0")
	p.MoveTo(p.frame(1, 0.5))
	p.text("#tip .name", "main")
	p.text("#tip .place", "user · program · src/main.cc:20")
	p.text("#tip table", "total96.0 %960self6.00 %60")

	// Search: a text, a regular expression, an invalid one.
	p.PressCtrl("f")
	p.Press("compare")
	p.text("#found", "40.0 % of samples · 1 function · 1 place")
	p.Press(browser.Enter)
	p.text("#detail .name", "compare")
	p.Press(browser.Escape)
	p.text("#found", "")
	p.Press("^(fib|main$)")
	p.text("#found", "no match")
	p.Click("[title='Regular expression']")
	p.text("#found", "96.0 % of samples · 2 functions · 1 place")
	p.Press("(")
	p.text("#found", "not a regular expression")
	p.Press(browser.Escape)

	// Zoom: by a click, to a caller, back.
	p.ClickAt(p.frame(2, 0.25))
	p.text("#crumbs", "allmainqsort")
	p.MoveTo(p.frame(3, 0.9))
	p.text("#tip .name", "do_syscall_64")
	p.text("#tip table", "total10.0 %100self10.0 %100of the zoomed frame20.0 %")
	p.ClickAt(p.frame(1, 0.9))
	p.text("#crumbs", "allmain")
	p.Press(browser.Escape)
	p.text("#crumbs", "all")
	if !browser.Eval[bool](p.Page, "document.querySelector('#reset').disabled") {
		t.Error("the zoom can be reset without one")
	}

	// Keys: the heaviest callee of main, its neighbour, zoom.
	p.Press(browser.ArrowDown)
	p.text("#detail .name", "qsort")
	p.Press(browser.ArrowRight)
	p.text("#detail .name", "Shape<int>::area()")
	p.Press(browser.Enter)
	p.text("#crumbs", "allmainShape<int>::area()")
	p.Press(browser.Backspace)
	p.text("#crumbs", "allmain")
	p.Click("#reset")
	p.text("#crumbs", "all")

	// Leaf first: compare has most samples, and one caller.
	p.Click("[title*='(r)']")
	p.MoveTo(p.frame(1, 0.2))
	p.text("#tip .name", "compare")
	p.text("#tip table", "total40.0 %400total, everywhere40.0 %400self, everywhere40.0 %400")
	p.MoveTo(p.frame(3, 0.2))
	p.text("#tip .name", "main")
	p.Click("[title*='(r)']")

	// A thread, a process, an event.
	p.pick("101")
	p.MoveTo(p.frame(0, 0.5))
	p.text("#tip table", "total100 %250self0 %0")
	p.choose("#event", "1")
	p.pick("")
	p.MoveTo(p.frame(2, 0.5))
	p.text("#tip .name", "fib /tmp/fib.js:2")
	p.text("#tip table", "total100 %8self100 %8")

	p.text("dd", "1,008 samples of 2 threads in 2.5 s")
	p.Press("?")
	p.Until("document.querySelector('#help').open")
	if title := browser.Eval[string](p.Page, "document.title"); title != human.Printable(hostile) {
		t.Errorf("title %q", title)
	}
	if n := browser.Eval[int](p.Page, "document.querySelectorAll('img, script').length"); n != 1 {
		t.Errorf("%d images and scripts", n)
	}
}

func TestPictureInABrowser(t *testing.T) {
	p := open(t, example(), Options{Format: SVG, Title: hostile})
	p.text("#detail", "Widths are shares of the 1,000 samples of cpu-clock.")
	wide := func(name string, want float64) {
		t.Helper()
		have := browser.Eval[float64](p.Page,
			`(g => g && g.style.display === '' ? Number(g.querySelector('rect').getAttribute('width')) : 0)(
			[...document.querySelectorAll('#frames g')].find(g => g.querySelector('title').textContent.startsWith(`+
				browser.Quote(name)+`)))`)
		if have < want-1.5 || have > want+0.5 {
			t.Errorf("%s is %.1f wide, not %.1f", name, have, want)
		}
	}
	const full = 1200 - 2*svgMargin
	wide("main", 0.96*full)
	wide("qsort", 0.5*full)
	p.MoveTo(svgMargin+100, svgTop+2.5*svgRow)
	p.text("#detail", "qsort   user, libc.so.6   total 50.0 % (500), self 0.0 % (0)")

	p.PressCtrl("f")
	p.Press("^(compare|fib)")
	p.text("#found", "55.0 % of samples · 3 frames")
	p.Press("(")
	p.text("#found", "not a regular expression")
	p.Press(browser.Escape)
	p.text("#found", "")
	p.Press(browser.Escape)

	p.ClickAt(svgMargin+100, svgTop+2.5*svgRow)
	wide("qsort", full)
	wide("main", full)
	wide("compare", 0.8*full)
	wide("fib", 0)
	p.Press(browser.ArrowDown)
	p.Press(browser.Enter)
	wide("compare", full)
	p.Press(browser.Escape)
	wide("main", 0.96*full)
	wide("fib", 0.15*full)
	p.Click("#reset:disabled")
	if n := browser.Eval[int](p.Page, "document.querySelectorAll('img, script').length"); n != 1 {
		t.Errorf("%d images and scripts", n)
	}
	if title := browser.Eval[string](p.Page, "document.title"); title == "owned" {
		t.Errorf("title %q", title)
	}
}

func TestNothingInABrowser(t *testing.T) {
	empty := profiletest.New(&profile.Profile{}).Profile
	p := open(t, empty, Options{})
	p.MoveTo(p.frame(0, 0.5))
	p.text("#tip table", "total0 %0self0 %0")
	p = open(t, empty, Options{Format: SVG})
	p.text("#detail", "Widths are shares of the 0 samples of nothing.")
}

// BenchmarkPage opens a page of a million samples of 100,000 distinct stacks. open, range, search and zoom
// are the times until the result is on the screen; slowest is the slowest picture during a zoom.
func BenchmarkPage(b *testing.B) {
	p := generated(100000)
	line := timeline(b, p, func(profile.Thread, int) time.Duration { return rand.N(time.Minute) })
	file := write(b, p, Options{Timeline: line})
	info, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	page := browser.Open(b, file, 1400, 900)
	page.Until("document.documentElement.dataset.ready")
	b.ReportMetric(float64(info.Size())/1e6, "MB")
	b.ReportMetric(browser.Eval[float64](page, "Number(document.documentElement.dataset.ready)"), "open-ms")
	const shown = "const frame = () => new Promise(requestAnimationFrame); " +
		"const shown = async () => { await frame(); await frame(); };"
	b.ReportMetric(browser.Eval[float64](page, `(async () => { `+shown+`
		const began = performance.now(), canvas = document.querySelector('#strip canvas');
		canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
		await shown();
		return performance.now() - began;
	})()`), "range-ms")
	page.Click(".strip .whole:not([hidden])")
	b.ReportMetric(browser.Eval[float64](page, `(async () => { `+shown+`
		const began = performance.now(), field = document.querySelector('#search');
		field.value = 'process_1';
		field.dispatchEvent(new Event('input'));
		await shown();
		return performance.now() - began;
	})()`), "search-ms")
	times := browser.Eval[[]float64](page, `(async () => { `+shown+`
		const canvas = document.querySelector('#graph canvas'), box = canvas.getBoundingClientRect();
		let slowest = 0;
		const began = performance.now();
		canvas.dispatchEvent(new MouseEvent('click', {clientX: box.left + 300, clientY: box.top + 19 * 4 + 8}));
		await frame();
		const first = performance.now() - began;
		for (let last = performance.now(); last - began < 300;) {
			await frame();
			slowest = Math.max(slowest, performance.now() - last);
			last = performance.now();
		}
		return [first, slowest];
	})()`)
	b.ReportMetric(times[0], "zoom-ms")
	b.ReportMetric(times[1], "slowest-ms")
	b.ReportMetric(browser.Eval[float64](page, `(async () => { `+shown+`
		const began = performance.now();
		document.querySelector('#reversed').click();
		await shown();
		return performance.now() - began;
	})()`), "reverse-ms")
	b.ReportMetric(0, "ns/op")
}
