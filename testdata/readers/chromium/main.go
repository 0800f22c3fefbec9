// Command chromium starts a headless browser and opens pages in it, each for a connection to a socket.
//
// First it writes an answer, whose value is the path of the socket. On a connection, requests and answers are JSON
// values, one answer for each request, in their order. The first request opens a page, and the page is closed when
// the connection is. The browser ends when the standard input does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Bounds of time, for a browser that hangs: no machine is so busy that all steps of a page take as long, or what a step
// waits for.
const (
	mostForPage = 10 * time.Minute
	mostForStep = time.Minute
)

// A request is one step. Do decides which fields are used: see page.do.
type request struct {
	Do            string
	File          string // to open, or to write a screenshot to
	Width, Height int    // of the window, in CSS pixels
	Selector      string
	Text          string // keys, a value, or JavaScript
	Ctrl          bool
	X, Y          float64 // in CSS pixels
	ToX, ToY      float64 // where a drag ends
}

// An answer has the error of a step, or its value, and all that the page has complained of so far.
type answer struct {
	Value      json.RawMessage `json:",omitempty"`
	Error      string          `json:",omitempty"`
	Missing    bool            `json:",omitempty"` // there is no browser
	Complaints []string        `json:",omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chromium:", err)
		os.Exit(1)
	}
}

func run() error {
	answers := json.NewEncoder(os.Stdout)
	path, err := browser()
	if err != nil {
		return answers.Encode(answer{Error: err.Error(), Missing: true})
	}
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	wanted, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	ctx, wait := start(wanted, path, filepath.Join(dir, "profile"))
	defer wait()
	if err := chromedp.Do(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	socket, err := json.Marshal(listener.Addr().String())
	if err == nil {
		err = answers.Encode(answer{Value: socket})
	}
	for err == nil {
		var c net.Conn
		if c, err = listener.Accept(); err == nil {
			go serve(ctx, c)
		}
	}
	if wanted.Err() != nil {
		return nil
	}
	return err
}

// start prepares a browser without network, which the first action starts. wait ends it and waits for that.
func start(ctx context.Context, path, profile string) (_ context.Context, wait func()) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(profile),
		chromedp.ProxyServer("127.0.0.1:9"), // nothing listens there: fetching anything is an error on the page
		chromedp.Flag("allow-file-access-from-files", true),
		chromedp.Flag("renderer-process-limit", "1"), // a process for each page doubles its costs
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, wait = chromedp.NewExecAllocator(ctx, options...)
	ctx, _ = chromedp.NewContext(ctx)
	return ctx, wait
}

// serve does what is asked for on a connection.
func serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	requests, answers := json.NewDecoder(c), json.NewEncoder(c)
	ctx, end := context.WithTimeout(ctx, mostForPage)
	defer end()
	ctx, closeTab := chromedp.NewContext(ctx)
	defer closeTab()
	p := page{ctx: ctx}
	for {
		var r request
		if requests.Decode(&r) != nil { // closed
			return
		}
		var a answer
		value, err := p.do(&r)
		if err != nil {
			a.Error = err.Error()
		}
		a.Value, a.Complaints = value, p.heard()
		if answers.Encode(a) != nil {
			return
		}
	}
}

// page is a tab.
type page struct {
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// do takes one step. Only "eval" has a value.
func (p *page) do(r *request) (value json.RawMessage, err error) {
	switch r.Do {
	case "open":
		return nil, p.open(r)
	case "complaints": // every answer has them
		return nil, nil
	case "eval":
		return chromedp.Run(p.ctx, chromedp.Evaluate[[]byte](r.Text, chromedp.EvalAwaitPromise))
	case "run":
		return nil, p.steps(chromedp.Evaluate[chromedp.Void](r.Text))
	case "until":
		return nil, p.steps(chromedp.Poll[chromedp.Void](r.Text, chromedp.WithPollingTimeout(mostForStep)))
	case "click":
		return nil, p.steps(chromedp.Click(r.Selector))
	case "click at":
		return nil, p.steps(chromedp.MouseEvent("mouseMoved", r.X, r.Y), chromedp.MouseClickXY(r.X, r.Y))
	case "move to":
		return nil, p.steps(chromedp.MouseEvent("mouseMoved", r.X, r.Y))
	case "drag":
		return nil, p.steps(chromedp.MouseEvent("mousePressed", r.X, r.Y, chromedp.ButtonLeft),
			chromedp.MouseEvent("mouseMoved", r.ToX, r.ToY, chromedp.ButtonLeft),
			chromedp.MouseEvent("mouseReleased", r.ToX, r.ToY, chromedp.ButtonLeft))
	case "press":
		if r.Ctrl {
			return nil, p.steps(chromedp.KeyEvent(r.Text, chromedp.KeyModifiers(chromedp.ModifierCtrl)))
		}
		return nil, p.steps(chromedp.KeyEvent(r.Text))
	case "set value":
		return nil, p.steps(chromedp.SetValue(r.Selector, r.Text))
	case "colours":
		_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: r.Text}},
		})
		return nil, err
	case "screenshot":
		picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(r.File, picture, 0o644)
	}
	return nil, fmt.Errorf("unknown request %q", r.Do)
}

func (p *page) steps(actions ...chromedp.Action[chromedp.Void]) error {
	_, err := chromedp.Run(p.ctx, chromedp.Steps(actions...))
	return err
}

// open opens a file. The page has the focus beside others, which Chromium without windows gives it anyway.
func (p *page) open(r *request) error {
	if err := chromedp.Listen(p.ctx, p.listen); err != nil {
		return err
	}
	_, err := chromedp.Call(p.ctx, emulation.SetFocusEmulationEnabled,
		emulation.SetFocusEmulationEnabledParams{Enabled: true})
	if err != nil {
		return err
	}
	return p.steps(
		chromedp.EmulateViewport(int64(r.Width), int64(r.Height)),
		chromedp.Navigate((&url.URL{Scheme: "file", Path: r.File}).String()),
	)
}

// browser finds one. The first is Chromium without windows, which starts in a quarter of the CPU time.
func browser() (path string, err error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no chromium")
}

// listen notes errors and warnings on the console, and exceptions that nothing caught.
func (p *page) listen(event any) {
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

func (p *page) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.complaints...)
}
