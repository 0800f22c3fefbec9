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
	Holds   string   // what is in such a file, in sentences, for 'unspool help formats'
	write   writer   // nil for perf.data, which needs no profile

	Nameless     bool // readers can find names themselves
	Processes    bool // stacks begin with the name of a process or a thread
	CommandLines bool // there is a place for those of processes
}

// Perf is the format of the recordings themselves.
var Perf = Format{
	Name: "perf", Endings: []string{".data"}, About: "perf, Hotspot, unspool",
	Holds:        "Everything that was recorded; no names.",
	CommandLines: true,
}

// Formats returns all formats, perf first. The help and the completion of --format are made from them, and tests
// go through them.
func Formats() []Format {
	return []Format{
		Perf,
		{
			Name: "pprof", Endings: []string{".pb.gz", ".pprof"}, About: "go tool pprof, go build -pgo",
			Holds: "Lines, inlined functions, addresses, mappings with build IDs, time. Labels: pid, tid, comm, process, " +
				"cmdline, cpu, and unwind: why the stack ends.",
			write: writePprof, Nameless: true, CommandLines: true,
		},
		{
			Name: "firefox", Endings: []string{".json.gz"}, About: "https://profiler.firefox.com",
			Holds: "Lines, inlined functions, the time of each sample, threads by process, kernel, user and JIT; losses " +
				"and throttling as markers.",
			write: writeFirefox, CommandLines: true,
		},
		{
			Name: "sysprof", Endings: []string{".syscap"}, About: "Sysprof, sysprof-cli",
			Holds: "The time of each sample, processes, mappings with build IDs. It has its own names (__symbols__), so it " +
				"opens on other machines, too. No inlined functions.",
			write: writeSyscap, Nameless: true, CommandLines: true,
		},
		{
			Name: "speedscope", Endings: []string{".speedscope.json"}, About: "https://www.speedscope.app",
			Holds: "Lines; a profile of all threads, and one of each of the heaviest 250; the order of time for up to " +
				"200,000 samples.",
			write: writeSpeedscope, Processes: true,
		},
		{
			Name: "flamegraph", Endings: []string{".html", ".svg"}, About: "Any browser, without network",
			Holds: "Lines, inlined functions, time, threads by program, how unwinding went.",
			write: writeFlamegraph, Processes: true,
		},
		{
			Name: "folded", Endings: []string{".folded"}, About: "flamegraph.pl, inferno, speedscope",
			Holds: "_[k] is the kernel, _[j] generated code, _[i] inlined, as stackcollapse-perf.pl writes them.",
			write: writeFolded, Processes: true,
		},
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
