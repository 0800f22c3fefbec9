// Package explore serves a profile in pprof's own web interface: flame graph, graph (which needs Graphviz), top, source, disassembly.
//
// Nobody but this machine is served unless the address says otherwise, and a page of another site gets nothing, by whatever name it reaches us. pprof's settings are read,
// but not written.
package explore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/driver"

	"unspool/capture/pprof"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// Options say how a profile is served.
type Options struct {
	Symbols symbols.Options  // where the files of images are
	Addr    string           // host and port, either of which may be missing: "" is a free port of localhost
	Browser bool             // open a browser
	Ready   func(url string) // called when there is something to see
	Problem func(string)     // called with what goes wrong with a page
}

// Serve serves p until ctx is done, which is no error. One profile can be served at a time: pprof's settings are the process's.
func Serve(ctx context.Context, p *profile.Profile, o Options) error {
	converted, err := pprof.Convert(p)
	if err != nil {
		return err
	}
	host, port := split(o.Addr)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer listener.Close()
	bound := listener.Addr().(*net.TCPAddr)
	at := net.JoinHostPort(host, strconv.Itoa(bound.Port))
	args := []string{"-http=" + at, "-symbolize=none", "profile"}
	if !o.Browser {
		args = append([]string{"-no_browser"}, args...)
	}
	return driver.PProf(&driver.Options{
		Flagset: newFlags(args),
		Fetch:   fetched{converted},
		Obj:     newObjects(ctx, converted, o.Symbols),
		UI:      messages{o},
		HTTPServer: func(args *driver.HTTPServerArgs) error {
			if o.Ready != nil {
				o.Ready("http://" + at)
			}
			return listen(ctx, listener, handler(args.Handlers, bound.IP.IsLoopback()))
		},
	})
}

// split returns the host and the port to listen at.
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
func handler(pages map[string]http.Handler, loopback bool) http.Handler {
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
	if !loopback {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A site whose name leads to this machine could have a browser read the profile to it.
		if !isLoopback(r.Host) {
			http.Error(w, "this profile is served to this machine only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isLoopback says whether a request's host, with or without a port, is this machine by a name that nobody else can give.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// patience is what pages that are being made are given at the end.
const patience = time.Second

// listen serves until ctx is done.
func listen(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		wait, cancel := context.WithTimeout(context.Background(), patience)
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
