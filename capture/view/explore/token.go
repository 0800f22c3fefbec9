package explore

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// gate admits users who know the token of the URL that is printed. A port of localhost is open to every
// user of the machine, and the address alone does not show who asks.
type gate struct {
	token  string // in the URL, for the first request
	cookie string // name of the cookie; browsers send the cookies of one port of a host to the others too
	ticket string // its value, which is not the token, as it may reach other servers of the host
}

// rand.Text has 130 random bits.
func newGate(port int) gate {
	return gate{token: rand.Text(), cookie: "unspool-" + strconv.Itoa(port), ticket: rand.Text()}
}

// url is the address with the token.
func (g gate) url(at string) string { return "http://" + at + "/?token=" + g.token }

// guard serves pages to those who are admitted.
func (g gate) guard(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case r.Method == http.MethodGet && same(r.URL.Query().Get("token"), g.token):
			g.admit(w, r.URL)
		case g.admitted(r):
			pages.ServeHTTP(w, r)
		default:
			http.Error(w, "open the address that unspool has printed, with its token", http.StatusForbidden)
		}
	})
}

// admit sets the cookie and redirects to the same page without the token, so that this is not in the
// browser's history.
func (g gate) admit(w http.ResponseWriter, asked *url.URL) {
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie, Value: g.ticket, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	query := asked.Query()
	query.Del("token")
	// A path that begins with two slashes would name another host.
	page := url.URL{Path: "/" + strings.TrimLeft(asked.Path, `/\`), RawQuery: query.Encode()}
	w.Header().Set("Location", page.String())
	w.WriteHeader(http.StatusSeeOther)
}

// admitted reports whether a request has the cookie. There may be several of that name, as other servers of
// the host can set cookies, too.
func (g gate) admitted(r *http.Request) bool {
	for _, c := range r.CookiesNamed(g.cookie) {
		if same(c.Value, g.ticket) {
			return true
		}
	}
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
