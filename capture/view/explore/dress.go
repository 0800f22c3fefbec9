package explore

import (
	"bytes"
	"html"
	"net/http"
	"regexp"
	"strings"

	proto "github.com/google/pprof/profile"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// dark turns pprof's pages, which have no colours for it, dark where the browser is asked for that: black and
// white change places, and hues stay.
const dark = `<style>@media (prefers-color-scheme: dark) {` +
	`html { background: #fff; filter: invert(0.9) hue-rotate(180deg); } }</style>`

// title is the name of a profile of several processes: pprof calls a profile by its first image, which says
// nothing then. It is "" for one process.
func title(p *profile.Profile) string {
	processes := make(map[uint32]bool)
	for _, t := range p.Threads {
		processes[t.PID] = true
	}
	if len(processes) < 2 {
		return ""
	}
	name := human.Number(uint64(len(processes))) + " processes"
	if p.Hostname == "" {
		return name
	}
	return human.Clean(p.Hostname) + ", " + name
}

// dress gives a page of pprof a title, if that is not "", names that can be read, and dark colours.
func dress(page http.Handler, title string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := &madePage{ResponseWriter: w}
		page.ServeHTTP(made, r)
		made.send(title)
	})
}

// madePage keeps a page until it is sent. What is no page is passed on.
type madePage struct {
	http.ResponseWriter
	body   bytes.Buffer
	status int
}

func (m *madePage) WriteHeader(status int) { m.status = status }

func (m *madePage) Write(b []byte) (int, error) { return m.body.Write(b) }

func (m *madePage) send(title string) {
	body := m.body.Bytes()
	if strings.HasPrefix(m.Header().Get("Content-Type"), "text/html") {
		body = keepWhole(retitle(body, title))
		body = bytes.Replace(body, []byte("</head>"), []byte(dark+"</head>"), 1)
	}
	if m.status != 0 {
		m.ResponseWriter.WriteHeader(m.status)
	}
	_, _ = m.ResponseWriter.Write(body) // who asked may have gone
}

// retitle replaces the title of a page, in its head and where it is a link to details.
func retitle(page []byte, title string) []byte {
	const opens, closes = "<title>", "</title>"
	from := bytes.Index(page, []byte(opens))
	to := bytes.Index(page, []byte(closes))
	if title == "" || from < 0 || to < from {
		return page
	}
	old := string(page[from+len(opens) : to])
	now := html.EscapeString(title)
	page = bytes.Replace(page, []byte(opens+old+closes), []byte(opens+now+closes), 1)
	return bytes.Replace(page, []byte(`id="details">`+old+"<"), []byte(`id="details">`+now+"<"), 1)
}

// cutNames are the forms of a name that pprof's flame graph shows where there is little room, each without
// what stands before a dot or "::". For a function that is not known, [libm-2.4.1.so+0x11170], these say
// nothing.
var cutNames = regexp.MustCompile(`"Display":\["(\[(?:[^"\\]|\\.)*\])"(?:,"(?:[^"\\]|\\.)*")+\]`)

// keepWhole leaves only the whole names of functions that are not known: the page cuts them at their end.
func keepWhole(page []byte) []byte { return cutNames.ReplaceAll(page, []byte(`"Display":["$1"]`)) }

// hideTags are options of pprof's to leave out the boxes that show at each function which threads were
// there. They cannot be read among many threads, and pprof complains if there is nothing to leave out.
func hideTags(p *proto.Profile) []string {
	for _, s := range p.Sample {
		if len(s.Label)+len(s.NumLabel) > 0 {
			return []string{"-taghide=."}
		}
	}
	return nil
}
