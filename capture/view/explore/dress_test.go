package explore

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"unspool/capture/profile"
)

// TestTitle: what several processes ran is not called by one of their images.
func TestTitle(t *testing.T) {
	one := &profile.Profile{Hostname: "box", Threads: []profile.Thread{{PID: 7, TID: 7}, {PID: 7, TID: 8}}}
	several := &profile.Profile{
		Hostname: "box\x1b", Threads: []profile.Thread{{PID: 7, TID: 7}, {PID: 9, TID: 9}},
	}
	for _, c := range []struct {
		p    *profile.Profile
		want string
	}{
		{one, ""}, {several, "box?, 2 processes"},
		{&profile.Profile{Threads: several.Threads}, "2 processes"}, {&profile.Profile{}, ""},
	} {
		if got := title(c.p); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestDress looks at what is changed of pprof's pages, and that the rest is passed on.
func TestDress(t *testing.T) {
	const page = `<head><title>dash cpu</title></head><a id="details">dash cpu</a>` +
		`"Display":["[libm-2.4.1.so+0x1]","4.1.so+0x1]","1.so+0x1]","so+0x1]"],"Display":["std::hash","hash"]`
	get := func(kind, title string) (body string, status int) {
		pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(http.StatusTeapot)
			w.Write([]byte(page))
		})
		w := httptest.NewRecorder()
		dress(pages, title).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Body.String(), w.Code
	}
	body, status := get("text/html", "a <b>, 2 processes")
	for _, want := range []string{
		"<title>a &lt;b&gt;, 2 processes</title>", `id="details">a &lt;b&gt;, 2 processes</a>`, dark + "</head>",
		`"Display":["[libm-2.4.1.so+0x1]"],"Display":["std::hash","hash"]`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if status != http.StatusTeapot {
		t.Errorf("status %d", status)
	}
	if body, _ := get("text/html; charset=utf-8", ""); !strings.Contains(body, "<title>dash cpu</title>") {
		t.Errorf("without a title: %s", body)
	}
	if body, _ := get("application/octet-stream", "x"); body != page {
		t.Errorf("what is no page is changed: %s", body)
	}
}

// TestGraphWithoutTags: functions have no boxes for the threads that were there.
func TestGraphWithoutTags(t *testing.T) {
	run(t, "dot", "-V")
	s := serve(t, record(t, spinSources), Options{})
	if _, body := s.get(t, "/ui/graph", ""); !strings.Contains(body, "<svg") || strings.Contains(body, "comm:") {
		t.Errorf("%s", excerpt(body))
	}
}
