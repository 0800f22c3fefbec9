package export

import "testing"

func TestFind(t *testing.T) {
	for _, c := range []struct{ name, output, want string }{
		{"", "perf.data", "perf"},
		{"", "-", "perf"},
		{"", "out", "perf"},
		{"", "perf.data.1", "perf"},
		{"", "x.pb.gz", "pprof"},
		{"", "x.pprof", "pprof"},
		{"", "X.JSON.GZ", "firefox"},
		{"", "x.speedscope.json", "speedscope"},
		{"", "dir.html/x.svg", "flamegraph"},
		{"", "x.html", "flamegraph"},
		{"", "dir.folded/x", "perf"},
		{"", "x.folded", "folded"},
		{"", "x.syscap", "sysprof"},
		{"folded", "x.html", "folded"},
		{"perf", "x.json", "perf"},
		{"", "x.json", ""},
		{"", "x.folded.gz", ""},
		{"", "x.txt", ""},
		{"nope", "x.html", ""},
	} {
		f, err := Find(c.name, c.output)
		if f.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("--format %q -o %s: %q, %v; want %q", c.name, c.output, f.Name, err, c.want)
		}
	}
}
