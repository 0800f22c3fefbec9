package firefox

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// synthetic is a profile in the making, with its timeline.
type synthetic struct {
	t testing.TB
	*profiletest.Builder
	timeline *profile.Timeline
}

// newSynthetic makes a profile of one event, a clock.
func newSynthetic(t testing.TB) *synthetic {
	t.Helper()
	timeline, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { timeline.Close() })
	return &synthetic{t, profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "prog", Path: "/bin/prog", BuildID: []byte{0x12, 0x34, 0x56, 0x78, 0x9a}}},
		Events: []profile.Event{{Name: "cpu-clock", Clock: true, Frequency: 1000}},
		First:  second,
	}), timeline}
}

const (
	second      = 1_000_000_000
	millisecond = 1_000_000
)

func (s *synthetic) thread(pid, tid uint32, comm string) int32 {
	return s.Thread(profile.Thread{PID: pid, TID: tid, Comm: comm})
}

// sample adds a sample that stands for a millisecond.
func (s *synthetic) sample(time uint64, thread, node, event int32) {
	s.t.Helper()
	one := profile.Sample{Thread: thread, Node: node, Event: event, CPU: 1, Count: 1, Period: millisecond}
	s.Sample(one)
	if err := s.timeline.Add(time, &one); err != nil {
		s.t.Fatal(err)
	}
}

// written writes the profile and reads it back, with all its indices checked.
func (s *synthetic) written(o Options) *document {
	s.t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s.Profile, s.timeline, o); err != nil {
		s.t.Fatal(err)
	}
	return parse(s.t, b.Bytes())
}

// document is the content of a file.
type document struct {
	raw  []byte
	Meta struct {
		PreprocessedProfileVersion                    int
		Interval, StartTime, ProfilingEndTime         float64
		Product                                       string
		Categories                                    []struct{ Subcategories []string }
		MarkerSchema                                  []struct{ Name string }
		InitialVisibleThreads, InitialSelectedThreads []int
		Extra                                         []struct {
			Label   string
			Entries []struct {
				Label string
				Value any
			}
		}
	}
	Libs   []struct{ Name, Path, DebugName, DebugPath, BreakpadID, CodeID, Arch string }
	Shared struct {
		StackTable struct {
			Length              int
			Frame, PrefixOffset []int
		}
		FrameTable struct {
			Length                                       int
			Address, InlineDepth, Category, Subcategory  []int
			Func                                         []int
			NativeSymbol, Line, Column, OriginalLocation []*int
			InnerWindowID                                []int
		}
		FuncTable struct {
			Length                                             int
			Name, Resource                                     []int
			IsJS, RelevantForJS                                []bool
			Source, LineNumber, ColumnNumber, OriginalLocation []*int
		}
		ResourceTable struct {
			Length     int
			Lib, Host  []*int
			Name, Type []int
		}
		NativeSymbols struct {
			Length                  int
			LibIndex, Address, Name []int
			FunctionSize            []*int
		}
		Sources struct {
			Length                           int
			Filename, StartLine, StartColumn []int
			ID, SourceMapURL, Content        []*int
		}
		StringArray []string
	}
	Threads []documentThread
}

type documentThread struct {
	Name, ProcessName, PID, TID, ProcessType string
	IsMainThread                             bool
	RegisterTime, ProcessStartupTime         float64
	UnregisterTime, ProcessShutdownTime      *float64
	Samples                                  struct {
		Length         int
		WeightType     string
		Stack          []*int
		TimeDeltas     []float64
		Weight         []int
		ThreadCPUDelta []float64
	}
	Markers struct {
		Length                int
		Name, Phase, Category []int
		StartTime             []float64
		EndTime               []*float64
		Data                  []struct {
			Type          string
			Count, Period int
			CPU           *int
			Cause         *struct{ Stack int }
		}
	}
}

// parse reads a file and looks up all that its indices lead to.
func parse(t testing.TB, b []byte) *document {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{raw: b}
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatalf("%v\n%.2000s", err, text)
	}
	d.check(t)
	return d
}

// checkColumn checks that a column has so many rows, and leads to rows of another table with of rows, or to
// none with -1 if that is permitted.
func checkColumn(t testing.TB, name string, at []int, rows, of int, none bool) {
	t.Helper()
	if len(at) != rows {
		t.Errorf("%s: %d rows of %d", name, len(at), rows)
	}
	for i, v := range at {
		if v >= of || v < 0 && !(none && v == -1) {
			t.Errorf("%s: row %d leads to %d of %d", name, i, v, of)
			return
		}
	}
}

// checkSome is checkColumn for a column that may have no values.
func checkSome(t testing.TB, name string, at []*int, rows, of int) {
	t.Helper()
	checkColumn(t, name, orMinusOne(at), rows, of, true)
}

func (d *document) check(t testing.TB) {
	t.Helper()
	column := func(name string, at []int, rows, of int, none bool) {
		t.Helper()
		checkColumn(t, name, at, rows, of, none)
	}
	some := func(name string, at []*int, rows, of int) {
		t.Helper()
		checkSome(t, name, at, rows, of)
	}
	const unbounded = 1 << 31
	stacks, frames, funcs, s := &d.Shared.StackTable, &d.Shared.FrameTable, &d.Shared.FuncTable, &d.Shared
	texts := len(s.StringArray)
	column("stack.frame", stacks.Frame, stacks.Length, frames.Length, false)
	column("stack.prefixOffset", stacks.PrefixOffset, stacks.Length, unbounded, false)
	for i, offset := range stacks.PrefixOffset {
		if offset > i {
			t.Errorf("stack %d has a parent %d before it", i, offset)
		}
	}
	column("frame.address", frames.Address, frames.Length, unbounded, true)
	column("frame.inlineDepth", frames.InlineDepth, frames.Length, 256, false)
	column("frame.category", frames.Category, frames.Length, len(d.Meta.Categories), false)
	for i, c := range frames.Category {
		column("frame.subcategory", frames.Subcategory[i:i+1], 1, len(d.Meta.Categories[c].Subcategories), false)
	}
	column("frame.func", frames.Func, frames.Length, funcs.Length, false)
	column("frame.innerWindowID", frames.InnerWindowID, frames.Length, 1, false)
	some("frame.nativeSymbol", frames.NativeSymbol, frames.Length, s.NativeSymbols.Length)
	some("frame.line", frames.Line, frames.Length, unbounded)
	some("frame.column", frames.Column, frames.Length, unbounded)
	some("frame.originalLocation", frames.OriginalLocation, frames.Length, 0)
	column("func.name", funcs.Name, funcs.Length, texts, false)
	column("func.resource", funcs.Resource, funcs.Length, s.ResourceTable.Length, true)
	some("func.source", funcs.Source, funcs.Length, s.Sources.Length)
	some("func.lineNumber", funcs.LineNumber, funcs.Length, unbounded)
	some("func.columnNumber", funcs.ColumnNumber, funcs.Length, unbounded)
	some("func.originalLocation", funcs.OriginalLocation, funcs.Length, 0)
	if len(funcs.IsJS) != funcs.Length || len(funcs.RelevantForJS) != funcs.Length {
		t.Errorf("func.isJS: %d and %d rows of %d", len(funcs.IsJS), len(funcs.RelevantForJS), funcs.Length)
	}
	some("resource.lib", s.ResourceTable.Lib, s.ResourceTable.Length, len(d.Libs))
	some("resource.host", s.ResourceTable.Host, s.ResourceTable.Length, 0)
	column("resource.name", s.ResourceTable.Name, s.ResourceTable.Length, texts, false)
	column("resource.type", s.ResourceTable.Type, s.ResourceTable.Length, 6, false)
	column("nativeSymbol.lib", s.NativeSymbols.LibIndex, s.NativeSymbols.Length, len(d.Libs), false)
	column("nativeSymbol.name", s.NativeSymbols.Name, s.NativeSymbols.Length, texts, false)
	column("nativeSymbol.address", s.NativeSymbols.Address, s.NativeSymbols.Length, unbounded, false)
	some("nativeSymbol.functionSize", s.NativeSymbols.FunctionSize, s.NativeSymbols.Length, unbounded)
	column("source.filename", s.Sources.Filename, s.Sources.Length, texts, false)
	column("source.startLine", s.Sources.StartLine, s.Sources.Length, 2, false)
	column("source.startColumn", s.Sources.StartColumn, s.Sources.Length, 2, false)
	some("source.id", s.Sources.ID, s.Sources.Length, 0)
	some("source.sourceMapURL", s.Sources.SourceMapURL, s.Sources.Length, 0)
	some("source.content", s.Sources.Content, s.Sources.Length, 0)
	column("visible threads", d.Meta.InitialVisibleThreads, len(d.Meta.InitialVisibleThreads), len(d.Threads),
		false)
	column("selected threads", d.Meta.InitialSelectedThreads, 1, len(d.Threads), false)
	d.checkThreads(t)
}

// checkThreads checks the samples and markers of the threads.
func (d *document) checkThreads(t testing.TB) {
	t.Helper()
	stacks, texts := d.Shared.StackTable.Length, len(d.Shared.StringArray)
	schemas := make(map[string]bool)
	for _, m := range d.Meta.MarkerSchema {
		schemas[m.Name] = true
	}
	ids := make(map[string]bool)
	for i := range d.Threads {
		th := &d.Threads[i]
		if ids[th.PID+" "+th.TID] {
			t.Errorf("two threads are %s %s", th.PID, th.TID)
		}
		ids[th.PID+" "+th.TID] = true
		n := th.Samples.Length
		checkSome(t, "sample.stack", th.Samples.Stack, n, stacks)
		if len(th.Samples.TimeDeltas) != n || th.Samples.Weight != nil && len(th.Samples.Weight) != n ||
			th.Samples.ThreadCPUDelta != nil && len(th.Samples.ThreadCPUDelta) != n {
			t.Errorf("thread %d: %d samples with %d times, %d weights, %d CPU times", i, n, len(th.Samples.TimeDeltas),
				len(th.Samples.Weight), len(th.Samples.ThreadCPUDelta))
		}
		for _, delta := range th.Samples.TimeDeltas {
			if delta < 0 {
				t.Errorf("thread %d: time goes back by %v ms", i, -delta)
			}
		}
		n = th.Markers.Length
		checkColumn(t, "marker.name", th.Markers.Name, n, texts, false)
		checkColumn(t, "marker.phase", th.Markers.Phase, n, 4, false)
		checkColumn(t, "marker.category", th.Markers.Category, n, len(d.Meta.Categories), false)
		if len(th.Markers.StartTime) != n || len(th.Markers.EndTime) != n || len(th.Markers.Data) != n {
			t.Errorf("thread %d: %d markers with %d and %d times, %d data", i, n, len(th.Markers.StartTime),
				len(th.Markers.EndTime), len(th.Markers.Data))
		}
		for _, data := range th.Markers.Data {
			if !schemas[data.Type] {
				t.Errorf("no schema of markers %q", data.Type)
			}
			if data.Cause != nil {
				checkColumn(t, "marker.cause", []int{data.Cause.Stack}, 1, stacks, false)
			}
		}
	}
}

func orMinusOne(at []*int) []int {
	values := make([]int, len(at))
	for i, v := range at {
		values[i] = -1
		if v != nil {
			values[i] = *v
		}
	}
	return values
}

// weight is the number of samples of a thread.
func (th *documentThread) weight() (n int) {
	if th.Samples.Weight == nil {
		return th.Samples.Length
	}
	for _, w := range th.Samples.Weight {
		n += w
	}
	return n
}

// frames returns the names of a stack, leaf first.
func (d *document) frames(stack int) (names []string) {
	s := &d.Shared
	for {
		names = append(names, s.StringArray[s.FuncTable.Name[s.FrameTable.Func[s.StackTable.Frame[stack]]]])
		offset := s.StackTable.PrefixOffset[stack]
		if offset == 0 {
			return names
		}
		stack -= offset
	}
}
