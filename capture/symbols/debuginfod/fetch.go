package debuginfod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

type server struct {
	base string // URL without a slash at the end
	name string // the same, without a password
	down error  // why it is not asked any more
}

// newServer takes a URL as libcurl does: without a scheme it is http.
func newServer(text string) *server {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	s := &server{base: strings.TrimRight(text, "/"), name: text}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		s.name, s.down = "in DEBUGINFOD_URLS", errors.New("not a URL") // without the text: it may hold a password
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "file":
		s.down = fmt.Errorf("unknown protocol %s", u.Scheme)
	}
	if err == nil {
		s.name = strings.TrimRight(u.Redacted(), "/")
	}
	return s
}

func newHTTP() http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
	return http.Client{Transport: t, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
			return fmt.Errorf("sends on to %s", r.URL.Redacted())
		}
		return nil
	}}
}

var (
	errSlow    = errors.New("too slow: less than 100 KiB within DEBUGINFOD_TIMEOUT")
	errMaxTime = errors.New("no complete file within DEBUGINFOD_MAXTIME")
	errAbsent  = errors.New("the server does not have it")
	errLate    = errors.New("another server was faster")
	errTooBig  = errors.New("too large") // wrapped
)

// fetch downloads a file to the cache.
func (c *Client) fetch(r request) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := c.ctx, context.CancelFunc(func() {})
	if c.options.MaxTime > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, c.options.MaxTime, errMaxTime)
	}
	defer cancel()
	defer c.progress("", 0, 0)
	var asked []*server
	var failed []error
	for _, s := range c.servers {
		if s.down == nil {
			asked = append(asked, s)
		} else {
			failed = append(failed, &ServerError{s.name, s.down})
		}
	}
	for retries := 0; len(asked) > 0; {
		if ctx.Err() != nil { // the servers that are left are not to blame
			failed = append(failed, errMaxTime)
			break
		}
		answers := c.ask(ctx, asked, r)
		again := false
		for _, a := range answers {
			if a.err == nil {
				if a.err = c.receive(a, r); a.err == nil {
					return nil
				}
			}
			if err := c.ctx.Err(); err != nil {
				return err
			}
			c.log("%s: %v", a.url(r), a.err)
			var local *CacheError
			if errors.As(a.err, &local) {
				return local
			}
			if a.transient() && retries < c.options.Retries {
				again = true
				continue
			}
			asked = slices.DeleteFunc(asked, func(s *server) bool { return s == a.server })
			if err := a.blame(r); err != nil {
				failed = append(failed, err)
			}
		}
		if again {
			retries++
			pause(ctx, time.Duration(retries)*100*time.Millisecond)
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	c.cache.miss(r)
	return ErrNotFound
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// answer is a server's answer to a request: a response, of which only the header has been read, or an
// error, or both.
type answer struct {
	server *server
	resp   *http.Response
	watch  *watch
	err    error
}

func (a *answer) url(r request) string {
	return a.server.name + "/buildid/" + r.id + "/" + string(r.kind)
}

// transient reports whether the same request may succeed a moment later.
func (a *answer) transient() bool {
	for _, lasting := range []error{errAbsent, errTooBig, errSlow, errMaxTime} {
		if errors.Is(a.err, lasting) {
			return false
		}
	}
	var refused *RefusedError
	return !errors.As(a.err, &refused) && (a.resp == nil || a.resp.StatusCode < 400 || a.resp.StatusCode >= 500)
}

// blame marks the server as down if the error is not only about this file, and returns the error to report.
func (a *answer) blame(r request) error {
	var refused *RefusedError
	switch {
	case errors.Is(a.err, errAbsent):
		return nil
	case errors.As(a.err, &refused):
		return refused
	case errors.Is(a.err, errTooBig):
		return &RefusedError{a.url(r), a.err}
	case a.resp == nil || errors.Is(a.err, errSlow):
		a.server.down = a.err
	}
	return &ServerError{a.server.name, a.err}
}

// ask asks servers at the same time. It returns their answers up to the first response with the file; it does
// not wait for the others.
func (c *Client) ask(ctx context.Context, asked []*server, r request) []*answer {
	var won atomic.Bool
	all := make(chan *answer, len(asked))
	watches := make([]*watch, len(asked))
	for i, s := range asked {
		w := newWatch(ctx, c.options.Timeout)
		watches[i] = w
		c.log("%s", (&answer{server: s}).url(r))
		go func() {
			a := c.get(w, s, r)
			if a.err == nil && !won.CompareAndSwap(false, true) {
				a.resp.Body.Close()
				a.err = errLate
			}
			all <- a
		}()
	}
	var answers []*answer
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	first := &answer{server: asked[0]}
	c.progress(first.url(r), 0, -1)
	for len(answers) < len(asked) {
		select {
		case <-tick.C:
			c.progress(first.url(r), 0, -1)
			continue
		case a := <-all:
			if a.err == errLate {
				continue // the answer of the faster server is about to come
			}
			answers = append(answers, a)
			if a.err != nil {
				a.watch.stop()
				continue
			}
		}
		break
	}
	for _, w := range watches {
		if last := answers[len(answers)-1]; last.err != nil || last.watch != w {
			w.stop()
		}
	}
	return answers
}

// get sends a request to one server.
func (c *Client) get(w *watch, s *server, r request) *answer {
	a := &answer{server: s, watch: w}
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, s.base+"/buildid/"+r.id+"/"+string(r.kind),
		nil)
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("User-Agent", "unspool")
	for name, values := range c.options.Header {
		req.Header[name] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		a.err = w.reason(err)
		return a
	}
	a.resp = resp
	switch resp.StatusCode {
	case http.StatusOK:
		return a
	case http.StatusNotFound, http.StatusGone:
		a.err = errAbsent
	case http.StatusNotAcceptable: // to X-DEBUGINFOD-MAXSIZE
		a.err = fmt.Errorf("%w: more than %d bytes", errTooBig, c.options.MaxSize)
	default:
		// Not in the server's words, as this is printed on a terminal.
		a.err = fmt.Errorf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	resp.Body.Close()
	return a
}

// receive reads a response to its end and puts the file into the cache.
func (c *Client) receive(a *answer, r request) error {
	defer a.watch.stop()
	defer a.resp.Body.Close()
	total := a.resp.ContentLength
	if total < 0 {
		total = -1
		if n, err := strconv.ParseInt(a.resp.Header.Get("X-Debuginfod-Size"), 10, 64); err == nil && n > 0 {
			total = n
		}
	}
	if total > c.options.MaxSize {
		return fmt.Errorf("%w: %d bytes, more than %d", errTooBig, total, c.options.MaxSize)
	}
	file, err := c.cache.create(r)
	if err != nil {
		return err
	}
	if err = c.copy(file, a, r, total); err == nil {
		if err = checkBuildID(file, r.id); err != nil {
			err = &RefusedError{a.url(r), err}
		}
	}
	if err != nil {
		c.cache.discard(r, file)
		return err
	}
	modified, _ := http.ParseTime(a.resp.Header.Get("Last-Modified"))
	return c.cache.commit(r, file, modified)
}

// progressEvery is how often Options.Progress is called.
const progressEvery = 100 * time.Millisecond

func (c *Client) progress(url string, done, total int64) {
	if c.options.Progress != nil {
		c.options.Progress(url, done, total)
	}
}

// copy writes the body of a response to a file.
func (c *Client) copy(file *os.File, a *answer, r request, total int64) error {
	var done int64
	told := time.Time{}
	for buf := make([]byte, 128<<10); ; {
		n, err := a.resp.Body.Read(buf)
		if done += int64(n); done > c.options.MaxSize {
			return fmt.Errorf("%w: more than %d bytes", errTooBig, c.options.MaxSize)
		}
		a.watch.came(n)
		if _, err := file.Write(buf[:n]); err != nil {
			return c.cache.failed(err)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return a.watch.reason(err)
		}
		if now := time.Now(); now.Sub(told) >= progressEvery {
			told = now
			c.progress(a.url(r), done, total)
		}
	}
}

// watch ends a request that is too slow.
type watch struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer // nil for no limit
	timeout time.Duration
	bytes   int // since the timer started
}

const enoughBytes = 100 << 10

func newWatch(ctx context.Context, timeout time.Duration) *watch {
	w := &watch{timeout: timeout}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	if timeout > 0 {
		w.timer = time.AfterFunc(timeout, func() { w.cancel(errSlow) })
	}
	return w
}

func (w *watch) came(n int) {
	if w.bytes += n; w.timer != nil && w.bytes >= enoughBytes {
		w.bytes = 0
		w.timer.Reset(w.timeout)
	}
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

// reason is why a request failed, without the URL, which names the file.
func (w *watch) reason(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	var about *url.Error
	if errors.As(err, &about) {
		return about.Err
	}
	return err
}
