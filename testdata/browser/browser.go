package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
)

// Keys without a text, as Press takes them. The program hands them to chromedp, whose package kb has them
// all.
const (
	Enter      = "\r"
	Escape     = "\u001b"
	Backspace  = "\b"
	ArrowDown  = "\u0301"
	ArrowRight = "\u0303"
)

// Page is a tab, which is closed at the end of the test. An error fails the test.
type Page struct {
	t          testing.TB
	requests   *json.Encoder
	answers    *json.Decoder
	complaints []string // as of the last answer
}

// A request is sent to testdata/readers/chromium, which documents it.
type request struct {
	Do            string
	File          string  `json:",omitempty"`
	Width, Height int     `json:",omitempty"`
	Selector      string  `json:",omitempty"`
	Text          string  `json:",omitempty"`
	Ctrl          bool    `json:",omitempty"`
	X, Y          float64 `json:",omitempty"`
	ToX, ToY      float64 `json:",omitempty"`
}

type answer struct {
	Value      json.RawMessage
	Error      string
	Missing    bool // there is no browser
	Complaints []string
}

// Open opens a file in a tab with a window of so many CSS pixels, in the browser that all pages share. Each is visible
// and has the focus; what pages store is of all of them. There is no network. Without Chromium the test is skipped.
func Open(t testing.TB, file string, width, height int) *Page {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := start()
	if err == errMissing {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p := &Page{t: t, requests: json.NewEncoder(c), answers: json.NewDecoder(c)}
	p.do(request{Do: "open", File: file, Width: width, Height: height})
	return p
}

var errMissing = errors.New("no chromium")

// start starts the program that drives the browser, one for all tests of a package, and returns the path of its
// socket. Both end with this process, whose end closes the program's standard input.
var start = sync.OnceValues(func() (socket string, err error) {
	cmd, err := Reader("chromium")
	if err != nil {
		return "", err
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var a answer
	if err := json.NewDecoder(out).Decode(&a); err != nil {
		return "", fmt.Errorf("chromium does not start: %w", errors.Join(err, cmd.Wait()))
	}
	if a.Missing {
		return "", errMissing
	}
	go func() {
		_ = cmd.Wait() // which is for ever: the program's standard input is not garbage
		in.Close()
	}()
	err = json.Unmarshal(a.Value, &socket)
	return socket, err
})

// packageFolder is the directory in which the tests of a package start, as a test may change its directory.
var packageFolder, errPackageFolder = os.Getwd()

// Reader is a command of the module testdata/readers: a program that reads what unspool writes.
func Reader(name string, args ...string) (*exec.Cmd, error) {
	if errPackageFolder != nil {
		return nil, errPackageFolder
	}
	folder := packageFolder
	for {
		readers := filepath.Join(folder, "testdata", "readers")
		if _, err := os.Stat(filepath.Join(readers, "go.mod")); err == nil {
			return exec.Command("go", append([]string{"run", "-C", readers, "./" + name}, args...)...), nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		above := filepath.Dir(folder)
		if above == folder {
			return nil, errors.New("no testdata/readers in any folder above " + packageFolder)
		}
		folder = above
	}
}

// do sends a request and waits for its answer.
func (p *Page) do(r request) json.RawMessage {
	p.t.Helper()
	var a answer
	if err := p.requests.Encode(r); err != nil {
		p.t.Fatalf("chromium: %s: %v", r.Do, err)
	}
	if err := p.answers.Decode(&a); err != nil {
		p.t.Fatalf("chromium: %s: no answer: %v", r.Do, err)
	}
	p.complaints = a.Complaints
	if a.Error != "" {
		p.t.Fatalf("chromium: %s; the page complains of %q", a.Error, p.complaints)
	}
	return a.Value
}

// Complaints are the page's errors and warnings so far.
func (p *Page) Complaints() []string {
	p.t.Helper()
	p.do(request{Do: "complaints"})
	return p.complaints
}

// Click clicks the middle of the element that the CSS selector finds.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do(request{Do: "click", Selector: selector})
}

// ClickAt moves the mouse to a point of the window, in CSS pixels, and clicks.
func (p *Page) ClickAt(x, y float64) {
	p.t.Helper()
	p.do(request{Do: "click at", X: x, Y: y})
}

// MoveTo moves the mouse to a point of the window, in CSS pixels.
func (p *Page) MoveTo(x, y float64) {
	p.t.Helper()
	p.do(request{Do: "move to", X: x, Y: y})
}

// Drag presses the mouse at a point of the window, in CSS pixels, moves it to another one and lets it go.
func (p *Page) Drag(x, y, toX, toY float64) {
	p.t.Helper()
	p.do(request{Do: "drag", X: x, Y: y, ToX: toX, ToY: toY})
}

// Press sends keys to the element that has the focus: text, or keys such as Enter.
func (p *Page) Press(keys string) {
	p.t.Helper()
	p.do(request{Do: "press", Text: keys})
}

// PressCtrl sends keys while Ctrl is held down.
func (p *Page) PressCtrl(keys string) {
	p.t.Helper()
	p.do(request{Do: "press", Text: keys, Ctrl: true})
}

// SetValue sets the value of the form field that the CSS selector finds.
func (p *Page) SetValue(selector, value string) {
	p.t.Helper()
	p.do(request{Do: "set value", Selector: selector, Text: value})
}

// Eval evaluates JavaScript in the page, awaiting a promise, and returns its value.
func Eval[T any](p *Page, script string) (v T) {
	p.t.Helper()
	value := p.do(request{Do: "eval", Text: script})
	if len(value) == 0 {
		value = json.RawMessage("null") // undefined
	}
	if err := json.Unmarshal(value, &v); err != nil {
		p.t.Fatalf("chromium: %v in %.200s; the page complains of %q", err, value, p.complaints)
	}
	if string(value) == "null" && !canBeNil(reflect.TypeFor[T]().Kind()) {
		p.t.Fatalf("chromium: %.200s is null or undefined; the page complains of %q", script, p.complaints)
	}
	return v
}

func canBeNil(k reflect.Kind) bool {
	return k == reflect.Pointer || k == reflect.Map || k == reflect.Slice || k == reflect.Interface
}

// Run runs JavaScript in the page and ignores its value.
func (p *Page) Run(script string) {
	p.t.Helper()
	p.do(request{Do: "run", Text: script})
}

// Shows waits until the first element that the CSS selector finds has a text.
func (p *Page) Shows(selector, want string) {
	p.t.Helper()
	have := "document.querySelector(" + Quote(selector) + ")?.textContent"
	if !Eval[bool](p, `new Promise(done => {
		const began = performance.now();
		const look = () => `+have+` === `+Quote(want)+` ? done(true)
			: performance.now() - began > 60000 ? done(false) : setTimeout(look, 20);
		look();
	})`) {
		p.t.Errorf("%s says %q, not %q", selector, Eval[string](p, have+" ?? 'nothing'"), want)
	}
}

// Box is where in the window an element is, and how wide, after a graph has stopped moving. A zoom takes 160 ms, and
// ends with the first picture after that, however late that is drawn.
func (p *Page) Box(selector string) (left, top, width float64) {
	p.t.Helper()
	box := Eval[[]float64](p, `new Promise(done => setTimeout(() => {
		requestAnimationFrame(() => requestAnimationFrame(() => {
			const b = document.querySelector(`+Quote(selector)+`).getBoundingClientRect();
			done([b.left, b.top, b.width]);
		}));
	}, 200))`)
	return box[0], box[1], box[2]
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
	p.do(request{Do: "until", Text: script})
}

// Dark sets the preference for dark colours, or for light ones.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.do(request{Do: "colours", Text: scheme})
}

// Screenshot writes a picture of the window to a PNG file.
func (p *Page) Screenshot(file string) {
	p.t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		p.t.Fatal(err)
	}
	p.do(request{Do: "screenshot", File: file})
}
