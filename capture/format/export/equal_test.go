package export

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"unspool/capture/live"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/testdata/programs"

	"golang.org/x/sys/unix"
)

// counts are numbers of samples by stack: the thread's name, then functions from the outermost to the leaf.
type counts map[string]uint64

func (c counts) add(n uint64, comm string, outermostFirst []string) {
	c[comm+";"+strings.Join(outermostFirst, ";")] += n
}

func (c counts) total() (n uint64) {
	for _, k := range c {
		n += k
	}
	return n
}

// TestEveryFormatHasTheSameSamples records a program once, writes it in every format, and reads the samples
// back from each.
func TestEveryFormatHasTheSameSamples(t *testing.T) {
	recording := recordWork(t)
	want, plain := loaded(t, recording, true), loaded(t, recording, false)
	if want.total() < 200 { // 100 page faults in each thread
		t.Fatalf("%d samples", want.total())
	}
	type reader struct {
		read func(testing.TB, []byte) counts
		want counts
	}
	readers := map[string]reader{
		"pprof":      {readPprof, withoutVersions(want)},
		"firefox":    {readFirefox, want},
		"sysprof":    {readSyscap, withoutThreads(plain)},
		"speedscope": {readSpeedscope, want},
		"flamegraph": {readPage, want},
		"folded":     {readFolded, want},
	}
	for _, format := range Formats()[1:] {
		t.Run(format.Name, func(t *testing.T) {
			c, ok := readers[format.Name]
			if !ok {
				t.Fatal("readers has no function that reads the samples back")
			}
			output := filepath.Join(t.TempDir(), "profile"+format.Endings[0])
			out, err := Write(context.Background(),
				Options{Format: format, Input: recording, Output: output, Lines: true})
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			got := c.read(t, b)
			if got.total() != out.Samples || out.Samples != want.total() || out.Written != uint64(len(b)) {
				t.Errorf("%d samples in %d bytes, of %d; said: %d in %d", got.total(), len(b), want.total(), out.Samples,
					out.Written)
			}
			differences := 0
			for _, stack := range slices.Sorted(maps.Keys(union(got, c.want))) {
				if got[stack] != c.want[stack] {
					if differences++; differences < 5 {
						t.Errorf("%d instead of %d: %s", got[stack], c.want[stack], stack)
					}
				}
			}
			if differences > 0 {
				t.Errorf("%d stacks of %d differ", differences, len(c.want))
			}
		})
	}
}

func union(a, b counts) counts {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// recordWork builds testdata/work.cc and records it.
func recordWork(t *testing.T) string {
	t.Helper()
	program := programs.BuildFile(t, "testdata/work.cc", "-g")
	path := filepath.Join(t.TempDir(), "perf.data")
	out, err := live.Record(context.Background(), live.Options{Command: []string{program},
		Events: []perfring.Event{{Name: "page-faults", Type: unix.PERF_TYPE_SOFTWARE,
			Config: unix.PERF_COUNT_SW_PAGE_FAULTS, ExcludeKernel: true, ExcludeHV: true}},
		Period: 1, StackSize: 8192, MaxStack: 2048, Output: path})
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if out.ExitStatus != 0 {
		t.Fatalf("exit status %d", out.ExitStatus)
	}
	return path
}

// loaded are the samples of the profile that all formats are made from.
func loaded(t *testing.T, path string, lines bool) counts {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}), profile.Options{Lines: lines})
	if err != nil {
		t.Fatal(err)
	}
	all := counts{}
	inlined := false
	for _, s := range p.Samples {
		var names []string
		for n := s.Node; n > 0; n = p.Nodes[n].Parent {
			f := &p.Frames[p.Nodes[n].Frame]
			names = append(names, f.Name)
			inlined = inlined || f.Inlined
		}
		slices.Reverse(names)
		all.add(s.Count, p.Threads[s.Thread].Comm, names)
	}
	if inlined != lines {
		t.Errorf("inlined functions: %v", inlined)
	}
	return all
}

func withoutThreads(c counts) counts {
	all := counts{}
	for stack, n := range c {
		_, frames, _ := strings.Cut(stack, ";")
		all[";"+frames] += n
	}
	return all
}

// unnamed is code without a name in a library, as in [libcrypto.so.3.1+0x11170].
var unnamed = regexp.MustCompile(`\[([^;\]]*)\.so[0-9.]*(\+0x[0-9a-f]+)?\]`)

// withoutVersions has such code as pprof has it, which would show what follows the last dot.
func withoutVersions(c counts) counts {
	all := counts{}
	for stack, n := range c {
		all[unnamed.ReplaceAllString(stack, "[$1$2]")] += n
	}
	return all
}

func readPprof(t testing.TB, b []byte) counts {
	p, err := pprof.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	all := counts{}
	for _, s := range p.Sample {
		var names []string
		for _, l := range s.Location {
			for _, line := range l.Line {
				names = append(names, line.Function.Name)
			}
		}
		slices.Reverse(names)
		all.add(uint64(s.Value[0]), s.Label["comm"][0], names)
	}
	return all
}

var foldedMark = regexp.MustCompile(`_\[[kji]\]$`)

func readFolded(t testing.TB, b []byte) counts {
	all := counts{}
	for line := range strings.Lines(string(b)) {
		stack, weight, _ := cutLast(strings.TrimSpace(line), " ")
		names := strings.Split(stack, ";")
		for i := range names {
			names[i] = foldedMark.ReplaceAllString(names[i], "")
		}
		var n uint64
		if _, err := fmt.Sscan(weight, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all.add(n, names[0], names[1:])
	}
	return all
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func readSpeedscope(t testing.TB, b []byte) counts {
	var file struct {
		Shared   struct{ Frames []struct{ Name string } }
		Profiles []struct {
			Name    string
			Samples [][]int
			Weights []uint64
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	all := counts{}
	for _, p := range file.Profiles[1:] { // the first is the sum
		comm, _, _ := cutLast(p.Name, " (")
		for i, stack := range p.Samples {
			var names []string
			for _, f := range stack {
				names = append(names, file.Shared.Frames[f].Name)
			}
			all.add(p.Weights[i], comm, names)
		}
	}
	return all
}

func readFirefox(t testing.TB, b []byte) counts {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Shared struct {
			StringArray []string
			StackTable  struct{ Frame, PrefixOffset []int } // back to the caller, 0 for none
			FrameTable  struct{ Func []int }
			FuncTable   struct{ Name []int }
		}
		Threads []struct {
			Name    string
			Samples struct {
				Stack  []*int
				Weight []uint64 // nil: all are 1
			}
		}
	}
	if err := json.NewDecoder(z).Decode(&file); err != nil {
		t.Fatal(err)
	}
	s := &file.Shared
	all := counts{}
	for _, thread := range file.Threads {
		for i, stack := range thread.Samples.Stack {
			weight := uint64(1)
			if thread.Samples.Weight != nil {
				weight = thread.Samples.Weight[i]
			}
			if weight == 0 {
				continue // a gap
			}
			var names []string
			for at := *stack; ; at -= s.StackTable.PrefixOffset[at] {
				names = append(names, s.StringArray[s.FuncTable.Name[s.FrameTable.Func[s.StackTable.Frame[at]]]])
				if s.StackTable.PrefixOffset[at] == 0 {
					break
				}
			}
			slices.Reverse(names)
			all.add(weight, thread.Name, names)
		}
	}
	return all
}

// readPage reads the data of the flame graph's page: see encode in package flamegraph.
func readPage(t testing.TB, b []byte) counts {
	_, rest, ok := strings.Cut(string(b), `id="data">`)
	text, _, ended := strings.Cut(rest, "<")
	packed, err := base64.StdEncoding.DecodeString(text)
	if !ok || !ended || err != nil {
		t.Fatalf("no data in the page: %v", err)
	}
	data, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		t.Fatal(err)
	}
	var header struct {
		Threads                   []struct{ Comm string }
		Names                     []string
		Functions, Nodes, Weights int
		Steps, Points             int
	}
	n := binary.LittleEndian.Uint32(data)
	if err := json.Unmarshal(data[4:4+n], &header); err != nil {
		t.Fatal(err)
	}
	if header.Steps == 0 || header.Points == 0 {
		t.Errorf("the page has no times: %d points in %d steps", header.Points, header.Steps)
	}
	numbers := bytes.NewReader(data[4+n:])
	next := func() int {
		v, err := binary.ReadUvarint(numbers)
		if err != nil {
			t.Fatal(err)
		}
		return int(v)
	}
	functions := make([]string, header.Functions)
	for i := range functions {
		functions[i] = header.Names[next()]
		next()
		next()
		next()
	}
	stacks := make([][]string, header.Nodes)
	for i := 1; i < header.Nodes; i++ {
		shared := len(stacks[i-1]) - next()
		stacks[i] = append(slices.Clone(stacks[i-1][:shared]), functions[next()])
		next()
	}
	all := counts{}
	node := 0
	for range header.Weights {
		node += next()
		next()
		thread := next()
		all.add(uint64(next()), header.Threads[thread].Comm, stacks[node])
	}
	return all
}

// readSyscap reads samples and __symbols__ of a capture (sysprof-capture-types.h).
func readSyscap(t testing.TB, b []byte) counts {
	le := binary.LittleEndian
	type key struct {
		pid  uint32
		addr uint64
	}
	type sample struct {
		pid   uint32
		addrs []uint64
	}
	var samples []sample
	var table []byte
	for at := 256; at < len(b); at += int(le.Uint16(b[at:])) {
		pid, body := le.Uint32(b[at+4:]), b[at+24:at+int(le.Uint16(b[at:]))]
		switch le.Uint32(b[at+16:]) {
		case 2:
			s := sample{pid: pid}
			for i := range int(le.Uint16(body)) {
				s.addrs = append(s.addrs, le.Uint64(body[8+8*i:]))
			}
			samples = append(samples, s)
		case 13:
			if name, _, _ := bytes.Cut(body[4:], []byte{0}); string(name) == "__symbols__" {
				table = append(table, body[260:260+int(le.Uint16(body[2:]))]...)
			}
		}
	}
	name := func(k key) string {
		for at := 0; le.Uint64(table[at+8:]) != 0; at += 32 {
			if le.Uint32(table[at+16:]) == k.pid && k.addr >= le.Uint64(table[at:]) &&
				k.addr < le.Uint64(table[at+8:]) {
				text, _, _ := bytes.Cut(table[le.Uint32(table[at+20:]):], []byte{0})
				return string(text)
			}
		}
		return "?"
	}
	names := map[key]string{}
	all := counts{}
	for _, s := range samples {
		var stack []string
		for _, a := range s.addrs {
			if a >= ^uint64(4094) { // a PERF_CONTEXT marker
				continue
			}
			k := key{s.pid, a}
			if _, ok := names[k]; !ok {
				names[k] = name(k)
			}
			stack = append(stack, names[k])
		}
		slices.Reverse(stack)
		all.add(1, "", stack)
	}
	return all
}
