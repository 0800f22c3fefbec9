package explore

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/driver"
	proto "github.com/google/pprof/profile"

	"unspool/capture/format/pprof"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// Options say how a profile is served.
type Options struct {
	Symbols symbols.Options // where the files of images are; without an Opener, which could have more rights
	// Listener is the socket over which pages are served; Serve closes it. With nil it listens at Addr.
	Listener *Listener
	Addr     string           // see Listen
	Ready    func(url string) // called when pages are served; the URL has the token
	Problem  func(string)     // called with errors in making a page, and with what is not shown

	// Drop is called after the socket is open, before any page is made or served. It is meant to give up rights,
	// which changes the process. Serve returns its error. It may be nil.
	Drop func() error
}

// Serve serves p until ctx is done, which is not an error. A process can serve one profile at a time, as
// pprof's settings are global.
func Serve(ctx context.Context, p *profile.Profile, o Options) error {
	converted, err := pprof.Convert(p)
	if err != nil {
		return err
	}
	listener := o.Listener
	if listener == nil {
		if listener, err = Listen(ctx, o.Addr); err != nil {
			return err
		}
	}
	defer listener.Close()
	if o.Drop != nil {
		if err := o.Drop(); err != nil {
			return err
		}
	}
	bound := listener.Addr().(*net.TCPAddr)
	at := net.JoinHostPort(listener.host, strconv.Itoa(bound.Port))
	gate := newGate(bound.Port)
	name := title(p)
	return makePages(ctx, p, converted, at, o, func(pages map[string]http.Handler) error {
		for path, page := range pages {
			pages[path] = dress(page, name)
		}
		if o.Ready != nil {
			o.Ready(gate.url(at))
		}
		return listen(ctx, listener, messages{o}, foreign(gate.guard(handler(pages))))
	})
}

// A Listener is a socket at an address.
type Listener struct {
	net.Listener
	host string // as in the address
}

// Listen opens a socket at a host and port, either of which may be missing: "" is a free port of localhost. The host
// has to be this machine: pages are for who has started unspool, and go over the socket as they are.
func Listen(ctx context.Context, addr string) (*Listener, error) {
	host, port := split(addr)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("cannot listen at %s: %w", net.JoinHostPort(host, port), reason(err))
	}
	if bound := l.Addr().(*net.TCPAddr); !bound.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("cannot listen at %s: only this machine is served (from another one: "+
			"ssh -L PORT:localhost:PORT HOST, and --http=PORT)", net.JoinHostPort(host, port))
	}
	return &Listener{l, host}, nil
}

// Programs are those that pages are made with, if they are installed: one disassembles, one draws graphs.
func Programs() []string { return []string{disassemblerName, "dot"} }

// makePages lets pprof make its pages of p, which from was converted to, and calls serve with them.
func makePages(
	ctx context.Context, from *profile.Profile, p *proto.Profile, at string, o Options,
	serve func(map[string]http.Handler) error,
) error {
	ui := messages{o}
	problem := func(text string) { ui.PrintErr(text) }
	objects := newObjects(ctx, from, p.Mapping, o.Symbols, problem)
	sources := newSources(p, problem)
	defer sources.close()
	args := append(sources.arguments(), hideTags(p)...)
	args = append(args, "-no_browser", "-http="+at, "-symbolize=none", "profile")
	run := func(objects driver.ObjTool, then func(map[string]http.Handler) error) error {
		return driver.PProf(&driver.Options{
			Flagset: newFlags(args), Fetch: fetched{p}, Obj: objects, UI: ui,
			HTTPServer: func(made *driver.HTTPServerArgs) error { return then(made.Handlers) },
		})
	}
	// The page with source has a profile of its own; pprof keeps a copy of the profile that it is given.
	restore := sources.maskAll(p)
	return run(sourceObjects{objects, sources}, func(masked map[string]http.Handler) error {
		restore()
		return run(objects, func(pages map[string]http.Handler) error {
			pages["/source"] = objects.alone(sources.page(masked["/source"]))
			pages["/disasm"] = objects.alone(pages["/disasm"])
			return serve(pages)
		})
	})
}

// reason is why nothing can listen at an address, without the address.
func reason(err error) error {
	var name *net.DNSError
	var address *net.AddrError
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errors.New(errno.Error()) // the number alone would be taken for one of perf_event_open
	case errors.As(err, &address):
		return errors.New(address.Err)
	case errors.As(err, &name) && strings.HasPrefix(name.Err, "unknown port"):
		return errors.New("there is no such port")
	case errors.As(err, &name) && name.IsNotFound:
		return errors.New("there is no such host")
	}
	return err
}

// split returns the host and the port to listen on.
func split(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = strings.Trim(addr, "[]"), ""
		if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
			host, port = "", addr
		}
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "0"
	}
	return host, port
}

// handler serves pprof's pages below /ui/.
func handler(pages map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, page := range pages {
		switch path {
		case "/":
			path = "/{$}"
		case "/saveconfig", "/deleteconfig":
			page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "pprof's settings are not changed from here", http.StatusForbidden)
			})
		}
		mux.Handle("/ui"+path, http.StripPrefix("/ui", page))
	}
	mux.Handle("/{$}", http.RedirectHandler("/ui/", http.StatusTemporaryRedirect))
	return mux
}

// foreign refuses requests for another host.
func foreign(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A site whose name resolves to this machine could make a browser read the profile and send it there.
		if !isLoopback(r.Host) {
			http.Error(w, "this profile is served to this machine only", http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a request's host, with or without a port, is a name for this machine that no other
// site can have.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// lastPages is how long Serve waits at its end for pages that are being made.
const lastPages = time.Second

// listen serves until ctx is done, which also ends the requests under way.
func listen(ctx context.Context, l net.Listener, ui messages, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(ui, "", 0),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		wait, cancel := context.WithTimeout(context.Background(), lastPages)
		defer cancel()
		if s.Shutdown(wait) != nil {
			s.Close()
		}
	})
	err := s.Serve(l)
	if stop() {
		return err
	}
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
