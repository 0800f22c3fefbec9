package export

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Format is a format that a recording can be written in.
type Format struct {
	Name    string   // for --format
	Endings []string // of file names that ask for it
	About   string   // what opens it
	write   writer   // nil for perf.data, which needs no profile

	Nameless     bool // readers can find names themselves
	Processes    bool // stacks begin with the name of a process or a thread
	CommandLines bool // there is a place for those of processes
}

// Perf is the format of the recordings themselves.
var Perf = Format{Name: "perf", Endings: []string{".data"}, About: "perf, Hotspot, unspool", CommandLines: true}

// Formats returns all formats, perf first.
func Formats() []Format {
	return []Format{
		Perf,
		{"pprof", []string{".pb.gz", ".pprof"}, "go tool pprof", writePprof, true, false, true},
		{"firefox", []string{".json.gz"}, "Firefox Profiler", writeFirefox, false, false, true},
		{"speedscope", []string{".speedscope.json"}, "speedscope", writeSpeedscope, false, true, false},
		{"flamegraph", []string{".html", ".svg"}, "any browser", writeFlamegraph, false, true, false},
		{"folded", []string{".folded"}, "flamegraph.pl, inferno", writeFolded, false, true, false},
		{"sysprof", []string{".syscap"}, "Sysprof", writeSyscap, true, false, true},
	}
}

// Find returns the format with a name, as --format gives it. For the name "", the ending of the output's name
// decides: any unknown ending means perf.data, except some that no perf.data has.
func Find(name, output string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
		if name != "" {
			continue
		}
		for _, ending := range f.Endings {
			if strings.HasSuffix(strings.ToLower(filepath.Base(output)), ending) {
				return f, nil
			}
		}
	}
	if name == "" {
		switch ending := strings.ToLower(filepath.Ext(output)); ending {
		case ".json", ".gz", ".txt", ".xml", ".pb", ".proto", ".htm", ".png", ".pdf":
			return Format{}, fmt.Errorf("%s: no format has the ending %s: choose one with --format: %s", output,
				ending, strings.Join(names, ", "))
		}
		return Perf, nil
	}
	return Format{}, fmt.Errorf("unknown format %q: there are %s", name, strings.Join(names, ", "))
}
