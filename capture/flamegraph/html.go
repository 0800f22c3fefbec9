package flamegraph

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/style.css
	styleCSS string
	//go:embed page/data.js
	dataJS string
	//go:embed page/graph.js
	graphJS string
	//go:embed page/page.js
	pageJS string
)

var page = template.Must(template.New("page").Parse(pageHTML))

// legendRow explains a colour.
type legendRow struct {
	Colour      int
	Word, Title string
}

// writeHTML writes the page. Names of the recorded system reach it escaped by the template, or in base64; the page runs no script but those
// of its own hash, and fetches nothing.
func writeHTML(w *bufio.Writer, g *graph, o Options) error {
	data, err := encode(g)
	if err != nil {
		return err
	}
	style := styleCSS + ":root{" + rules("--fill%d-%d:%s;", false) + "}\n@media (prefers-color-scheme: dark){:root{" + rules("--fill%d-%d:%s;", true) + "}}\n"
	var rows []legendRow
	for _, c := range legend {
		style += fmt.Sprintf(".fill%d{background:var(--fill%d-1)}", c, c)
		rows = append(rows, legendRow{c, palette[c].word, palette[c].title})
	}
	script := "\n" + dataJS + graphJS + pageJS
	return page.Execute(w, map[string]any{
		"Title":      printable(o.Title),
		"Style":      template.CSS(style),
		"StyleHash":  hash(style),
		"Script":     template.JS(script),
		"ScriptHash": hash(script),
		"Legend":     rows,
		"Facts":      summary(g),
		"Data":       template.HTML(base64.StdEncoding.EncodeToString(data)), // nothing in it needs to be escaped
	})
}

// hash is how a Content-Security-Policy names a script or a style.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
