package flamegraph

import (
	"bufio"
	_ "embed"
	"html/template"
	"sync"

	"unspool/capture/output/human"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/style.css
	styleCSS string
	//go:embed page/parts.js
	partsJS string
	//go:embed page/data.js
	dataJS string
	//go:embed page/graph.js
	graphJS string
	//go:embed page/threads.js
	threadsJS string
	//go:embed page/strip.js
	stripJS string
	//go:embed page/page.js
	pageJS string
)

// page is parsed when one is written, and not whenever the program starts.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Parse(pageHTML))
})

// writeHTML writes the page. Names of the recorded system are escaped by the template, or in base64; the
// page runs only scripts whose hash it has, and fetches nothing.
func writeHTML(w *bufio.Writer, g *graph, s *steps, o Options) error {
	data, err := encode(g, s)
	if err != nil {
		return err
	}
	style, script := Style(), Script()+threadsJS+stripJS+pageJS+"start(Page);\n"
	return page().Execute(w, map[string]any{
		"Title":      human.Printable(o.Title),
		"Origin":     origin(g.p),
		"Style":      template.CSS(style),
		"StyleHash":  Hash(style),
		"Script":     template.JS(script),
		"ScriptHash": Hash(script),
		"Legend":     Legend(),
		"Facts":      summary(g.p),
		"Data":       data,
	})
}
