package flamegraph

import (
	"bufio"
	_ "embed"
	"html/template"
	"sync"
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
	return Page(pageHTML, nil)
})

// writeHTML writes the page. Names of the recorded system are escaped by the template, or in base64.
func writeHTML(w *bufio.Writer, g *graph, s *steps, o Options) error {
	data, err := encode(g, s)
	if err != nil {
		return err
	}
	values := Head(o.Title, Style(), Script()+StripScript()+pageJS+"start(Page);\n")
	values["Origin"], values["Facts"], values["Data"] = origin(g.p), summary(g.p), data
	return page().Execute(w, values)
}
