package debuginfod

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// clearEnvironment unsets all variables that the client reads; the end of the test restores them.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"URLS", "CACHE_PATH", "TIMEOUT", "MAXTIME", "MAXSIZE", "RETRY_LIMIT",
		"PROGRESS", "HEADERS_FILE", "VERBOSE"} {
		t.Setenv("DEBUGINFOD_"+name, "") // so that the value is restored
		os.Unsetenv("DEBUGINFOD_" + name)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", t.TempDir())
}

func TestNothingWithoutServers(t *testing.T) {
	clearEnvironment(t)
	for _, urls := range []string{"", " ", "ima:enforcing", " ima:ignore ima:permissive "} {
		t.Setenv("DEBUGINFOD_URLS", urls)
		if o, ok := Environment(); ok {
			t.Errorf("%q: %+v", urls, o)
		}
	}
}

func TestEnvironment(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("DEBUGINFOD_URLS", " http://one ima:enforcing https://two/  http://one")
	want := Options{Servers: []string{"http://one", "https://two/"}, Timeout: 90 * time.Second, Retries: 2,
		Header: http.Header{},
		Cache:  filepath.Join(os.Getenv("HOME"), ".cache/debuginfod_client")}
	if o, ok := Environment(); !ok || !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	headers := filepath.Join(t.TempDir(), "headers")
	write(t, headers, []byte("X-Token: a:b\n\n no name\nempty:\nbad name: x\n:x\nX-Token: c\r\n"))
	for name, value := range map[string]string{"TIMEOUT": "5", "MAXTIME": "7", "MAXSIZE": "1000",
		"RETRY_LIMIT": "0", "HEADERS_FILE": headers,
		"PROGRESS": "1", "VERBOSE": "1", "CACHE_PATH": "/cache"} {
		t.Setenv("DEBUGINFOD_"+name, value)
	}
	o, _ := Environment()
	if o.Progress == nil || o.Log != os.Stderr {
		t.Error("no progress, or no log")
	}
	o.Progress, o.Log = nil, nil
	want = Options{Servers: want.Servers, Timeout: 5 * time.Second, MaxTime: 7 * time.Second, MaxSize: 1000,
		Cache:  "/cache",
		Header: http.Header{"X-Token": {"a:b", "c"}, "X-Debuginfod-Maxsize": {"1000"}}}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	t.Setenv("DEBUGINFOD_TIMEOUT", "-1")
	if o, _ := Environment(); o.Timeout != 0 {
		t.Errorf("timeout %v", o.Timeout)
	}
}

func TestCacheFolder(t *testing.T) {
	clearEnvironment(t)
	home := os.Getenv("HOME")
	check := func(want string) {
		t.Helper()
		if got := cacheFolder(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check(home + "/.cache/debuginfod_client")
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	check("/xdg/debuginfod_client")
	write(t, filepath.Join(home, ".debuginfod_client_cache/max_unused_age_s"), nil)
	check(home + "/.debuginfod_client_cache")
	t.Setenv("DEBUGINFOD_CACHE_PATH", "/else")
	check("/else")
}

func TestHeadersAreSent(t *testing.T) {
	var got http.Header
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		good(w, r)
	})
	c := New(t.Context(), Options{Servers: []string{url}, Cache: t.TempDir(),
		Header: http.Header{"X-Token": {"a", "b"}}})
	fetched(t, c)
	if !reflect.DeepEqual(got["X-Token"], []string{"a", "b"}) || got.Get("User-Agent") != "unspool" {
		t.Errorf("%v", got)
	}
}

func TestServers(t *testing.T) {
	for _, s := range []struct {
		text, base, name string
		good             bool
	}{
		{"http://host:8002/", "http://host:8002", "http://host:8002", true},
		{"host:8002", "http://host:8002", "http://host:8002", true},
		{"https://me:secret@host/sub/", "https://me:secret@host/sub", "https://me:xxxxx@host/sub", true},
		{"ftp://host", "ftp://host", "ftp://host", false},
		{"http://me:secret@[", "http://me:secret@[", "in DEBUGINFOD_URLS", false},
	} {
		got := newServer(s.text)
		if got.base != s.base || got.name != s.name || (got.down == nil) != s.good {
			t.Errorf("%s: %+v", s.text, got)
		}
	}
}

func TestStatus(t *testing.T) {
	const url = "https://debuginfod.example.org:8002/buildid/00112233445566778899aabbccddeeff00112233/debuginfo"
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{0, -1, "debuginfo 00112233 from debuginfod.example.org:8002: waiting for 3 s"},
		{3 << 19, -1, "debuginfo 00112233 from debuginfod.example.org:8002: 1.5 MiB"},
		{3 << 19, 3 << 20, "debuginfo 00112233 from debuginfod.example.org:8002: 1.5 of 3.0 MiB"},
	} {
		if got := status(url, c.done, c.total, 3*time.Second); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	var shown []string
	progress := Status(func(text string) { shown = append(shown, text) })
	progress(url, 0, -1)
	progress("", 0, 0)
	if want := []string{status(url, 0, -1, 0), ""}; !slices.Equal(shown, want) {
		t.Errorf("%q, want %q", shown, want)
	}
}

// FuzzHeaders checks that every header that is read can be sent.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte("X-Token: a\nAuthorization: Bearer b\r\n"))
	f.Add([]byte("\x00: \x7f\n: \nx:\n"))
	name := filepath.Join(f.TempDir(), "headers")
	connects := errors.New("connects")
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, connects
	}}
	f.Fuzz(inputs.Many(f, func(t *testing.T, content []byte) {
		defer costs.For(len(content)).Check(t)()
		write(t, name, content)
		header := make(http.Header)
		readHeader(name, header)
		req, err := http.NewRequest(http.MethodGet, "http://host/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, connects) {
			t.Errorf("%q: %v", header, err)
		}
	}))
}
