package flamegraph

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// A Graph is what a page of several graphs shows: a valid profile, and its samples one by one, nil for none.
type Graph struct {
	Profile *profile.Profile
	Samples Samples
}

// Data are graphs in the form that the scripts of a page read (unpack in data.js), in an alphabet that need
// not be escaped. Callees of a function are sorted by the falling rank of their name and image, so that all
// graphs have them in the same order. The steps of time are the same in all of them.
func Data(rank func(name, image string) float64, graphs ...Graph) (data []template.HTML, err error) {
	drawn, times := make([]*graph, len(graphs)), make([]*steps, len(graphs))
	n := mostSteps
	for i, g := range graphs {
		drawn[i] = newRanked(g.Profile, rank)
		if g.Samples == nil || g.Profile.Duration <= 0 {
			continue
		}
		if times[i], err = drawn[i].steps(g.Samples, g.Profile.First, drawn[i].length); err != nil {
			return nil, err
		}
		n = min(n, times[i].n)
	}
	for i, g := range drawn {
		if times[i] != nil {
			times[i].limit(n)
		}
		text, err := encode(g, times[i])
		if err != nil {
			return nil, err
		}
		data = append(data, text)
	}
	return data, nil
}

// Script is what a page with graphs of its own needs to draw them: parts.js, data.js and graph.js.
func Script() string { return "\n" + partsJS + dataJS + graphJS }

// StripScript is what a page needs for a strip of time besides Script: threads.js and strip.js.
func StripScript() string { return threadsJS + stripJS }

// Style is the style that goes with Script.
func Style() string {
	style := styleCSS + ":root{" + rules("--fill%d-%d:%s;", false) +
		"}\n@media (prefers-color-scheme: dark){:root{" + rules("--fill%d-%d:%s;", true) + "}}\n"
	for _, c := range legend { // all shades side by side, each in a quarter
		style += fmt.Sprintf(".fill%[1]d{background:linear-gradient(90deg,var(--fill%[1]d-0) 25%%,"+
			"var(--fill%[1]d-1) 25%% 50%%,var(--fill%[1]d-2) 50%% 75%%,var(--fill%[1]d-3) 75%%)}", c)
	}
	return style
}

// LegendRow explains a colour.
type LegendRow struct {
	Colour      int
	Word, Title string
}

// Legend explains the colours of Style, which are numbered as profile.Kind is.
func Legend() (rows []LegendRow) {
	for _, c := range legend {
		rows = append(rows, LegendRow{c, palette[c].word, palette[c].title})
	}
	return rows
}

//go:embed page/skeleton.html
var skeletonHTML string

// Page is the template of a page with graphs. Its text may use what skeleton.html defines, with the values of Head, and
// has to define "keys", the rows of its own in the table of keys.
func Page(text string, funcs template.FuncMap) *template.Template {
	page := template.Must(template.New("page").Funcs(funcs).Parse(skeletonHTML))
	return template.Must(page.Parse(text))
}

// Head returns the values that are in every page. It runs only the script, whose hash it has, and fetches nothing.
func Head(title, style, script string) map[string]any {
	return map[string]any{
		"Title": human.Printable(title),
		"Style": template.CSS(style), "StyleHash": hash(style),
		"Script": template.JS(script), "ScriptHash": hash(script),
		"Legend": Legend(),
	}
}

// hash is how a Content-Security-Policy names a script or a style.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
