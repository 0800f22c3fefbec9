package flamegraph

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"

	"unspool/capture/profile"
)

// Data is a valid profile in the form that the scripts of a page read (unpack in data.js), in an alphabet
// that need not be escaped. Callees of a function are sorted by the falling rank of their name and image,
// so that two graphs have them in the same order.
func Data(p *profile.Profile, rank func(name, image string) float64) (template.HTML, error) {
	return encode(newRanked(p, rank), nil)
}

// Script is what a page with graphs of its own needs to draw them: parts.js, data.js and graph.js.
func Script() string { return "\n" + partsJS + dataJS + graphJS }

// Style is the style that goes with Script.
func Style() string {
	style := styleCSS + ":root{" + rules("--fill%d-%d:%s;", false) +
		"}\n@media (prefers-color-scheme: dark){:root{" + rules("--fill%d-%d:%s;", true) + "}}\n"
	for _, c := range legend {
		style += fmt.Sprintf(".fill%d{background:var(--fill%d-1)}", c, c)
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

// Hash is how a Content-Security-Policy names a script or a style.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
