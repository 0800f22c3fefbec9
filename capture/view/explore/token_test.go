package explore

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestToken asks without the cookie that a browser gets by the URL that was printed, and with similar ones.
func TestToken(t *testing.T) {
	s, other := serve(t, small, Options{}), newGate(1)
	at, _ := url.Parse(s.base)
	token, own := strings.TrimPrefix(s.url, s.base+"/?token="), s.cookie(t)
	if len(token) < 26 || token == own.Value { // of 32 letters: 130 bits
		t.Fatalf("token %q, cookie %v", token, own)
	}
	if !strings.HasSuffix(own.Name, at.Port()) {
		t.Errorf("cookie %s, port %s: two servers would use one", own.Name, at.Port())
	}
	for _, c := range []struct {
		name, method, page, cookie string
		status                     int
	}{
		{"nothing", "GET", "/ui/top", "", 403},
		{"nothing, for no page", "GET", "/nothing", "", 403},
		{"nothing, POST", "POST", "/ui/top", "", 403},
		{"cookie", "GET", "/ui/top", own.Name + "=" + own.Value, 200},
		{"cookie, for no page", "GET", "/nothing", own.Name + "=" + own.Value, 404},
		{"cookie behind another", "GET", "/ui/top", own.Name + "=x; " + own.Name + "=" + own.Value, 200},
		{"cookie of another server", "GET", "/ui/top", other.cookie + "=" + other.ticket, 403},
		{"its value for our name", "GET", "/ui/top", own.Name + "=" + other.ticket, 403},
		{"our value for its name", "GET", "/ui/top", other.cookie + "=" + own.Value, 403},
		{"empty cookie", "GET", "/ui/top", own.Name + "=", 403},
		{"the token as cookie", "GET", "/ui/top", own.Name + "=" + token, 403},
		{"empty token", "GET", "/ui/top?token=", "", 403},
		{"wrong token", "GET", "/ui/top?token=" + other.token, "", 403},
		{"a part of it", "GET", "/ui/top?token=" + token[:25], "", 403},
		{"more than it", "GET", "/ui/top?token=" + token + "A", "", 403},
		{"the cookie as token", "GET", "/ui/top?token=" + own.Value, "", 403},
		{"token by POST", "POST", "/ui/top?token=" + token, "", 403},
		{"token", "GET", "/ui/top?token=" + token, "", 303},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequest(c.method, s.base+c.page, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.cookie != "" {
				req.Header.Set("Cookie", c.cookie)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status {
				t.Errorf("%s, not %d", resp.Status, c.status)
			}
			h := resp.Header
			if c.status == 403 && (strings.Contains(string(body), "main") || h["Set-Cookie"] != nil) {
				t.Errorf("403 with %v: %s", h, body)
			}
			if h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%v", h)
			}
		})
	}
}

func TestTokenIsTakenOutOfTheURL(t *testing.T) {
	g := newGate(1)
	h := g.guard(http.NotFoundHandler())
	for asked, want := range map[string]string{
		"/?token=T":                              "/",
		"/ui/top?token=T":                        "/ui/top",
		"/ui/source?f=a%26b&token=T&g=files":     "/ui/source?f=a%26b&g=files",
		"//evil.example/?token=T":                "/evil.example/",
		"/%5Cevil.example/?token=T":              "/evil.example/",
		"http://localhost//evil.example?token=T": "/evil.example",
	} {
		w := httptest.NewRecorder()
		asked = strings.Replace(asked, "token=T", "token="+g.token, 1)
		h.ServeHTTP(w, httptest.NewRequest("GET", asked, nil))
		if got := w.Header().Get("Location"); w.Code != 303 || got != want {
			t.Errorf("%s: %d, to %q, not %q", asked, w.Code, got, want)
		}
		set := w.Result().Cookies()
		if len(set) != 1 {
			t.Fatalf("%s: cookies %v", asked, set)
		}
		if c := set[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
			t.Errorf("%s: cookie %v", asked, c)
		}
	}
}
