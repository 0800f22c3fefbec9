package flamegraph

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/unwind"
)

// hostile is a name that a recorded system could give to its functions, threads and files.
const hostile = "</script><script>document.title='owned'</script><img src=x " +
	"onerror=\"document.title='owned'\">&amp;\x00\x1b[31m\u202e\xff\xfe'\"`${1}]]>"

// example has 1,000 samples of two threads, with all kinds of frames.
func example() *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "program"}, {Name: "libc.so.6"}, {Name: "[kernel]"}, {Name: "[heap]"},
			{Name: "[unmapped]"}},
		Frames: []profile.Frame{
			0: {Name: "main", PC: 0x10, File: "src/main.cc", Line: 12, Known: true},
			1: {Name: "main", PC: 0x20, File: "src/main.cc", Line: 20, Known: true},
			2: {Name: "Shape<int>::area()", PC: 0x10, Inlined: true, File: "src/shape.h", Line: 7, Known: true},
			3: {Name: "qsort", Image: 1, Known: true},
			4: {Name: "compare", PC: 0x40, File: "src/main.cc", Line: 33, Known: true},
			5: {Name: "do_syscall_64", Image: 2, Kind: profile.Kernel, Known: true},
			6: {Name: "fib /tmp/fib.js:2", Image: 3, Kind: profile.JIT, Known: true},
			7: {Name: "[unmapped]", Image: 4, Kind: profile.Unmapped},
			8: {Name: hostile, PC: 0x50, Known: true},
		},
		Events:      []profile.Event{{Name: "dummy"}, {Name: "cpu-clock", Clock: true}, {Name: "page-faults"}},
		LostSamples: 3, Throttled: 1, Duration: 2500 * time.Millisecond, Began: time.Unix(1700000000, 0).UTC(),
		Hostname: "host", OSRelease: "6.1.0", Arch: "x86_64", Command: []string{"unspool", "record", "--", hostile},
		Problems: []string{"no names for " + hostile},
	})
	program := p.Thread(profile.Thread{PID: 100, TID: 100, Comm: "program"})
	other := p.Thread(profile.Thread{PID: 100, TID: 101, Comm: hostile, Program: "program"})
	add := func(thread, event int32, count uint64, end profile.End, frames ...int32) {
		p.Sample(profile.Sample{Thread: thread, Node: p.Stack(frames...), Event: event, CPU: -1, End: end,
			Count: count, Period: count})
	}
	add(program, 1, 200, profile.Complete, 0, 2)
	add(program, 1, 300, profile.Complete, 1, 3, 4)
	add(program, 1, 100, profile.Complete, 1, 3, 5)
	add(program, 1, 150, profile.Complete, 1, 6, 6)
	add(other, 1, 100, profile.Complete, 1, 3, 4)
	add(other, 1, 60, profile.Complete, 1)
	add(other, 1, 40, profile.Ended(unwind.Unmapped), 7)
	add(other, 1, 50, profile.Complete, 1, 8)
	add(program, 2, 8, profile.Complete, 1, 6)
	return p.Profile
}

// generated has a number of distinct stacks, about 30 frames deep, of a program whose functions mostly call
// the same few others.
func generated(stacks int) *profile.Profile {
	const functions, images, threads = 20000, 40, 64
	random := rand.New(rand.NewPCG(1, 2))
	p := profiletest.New(&profile.Profile{
		Events: []profile.Event{{Name: "cpu-clock", Clock: true}}, Duration: time.Minute,
	})
	for i := range threads {
		p.Thread(profile.Thread{PID: uint32(100 + i/8), TID: uint32(100 + i), Comm: fmt.Sprintf("worker-%d", i/8)})
	}
	for i := range images {
		p.Images = append(p.Images, profile.Image{Name: fmt.Sprintf("lib%d.so", i)})
	}
	for i := range functions {
		p.Frames = append(p.Frames, profile.Frame{
			Name: fmt.Sprintf("project::module%d::Handler<std::vector<Item%d>>::process_%d(Context const&, "+
				"unsigned long)", i%300, i%17, i),
			Image: int32(i % images), Kind: []profile.Kind{profile.User, profile.User, profile.JIT}[i%9/4],
			Known: true,
			PC:    uint64(i + 1), File: fmt.Sprintf("src/module%d.cc", i%300), Line: int32(i%900 + 1),
		})
	}
	sampled := make(map[int32]bool)
	for len(sampled) < stacks {
		frame := 0
		var stack []int32
		for range 16 + random.IntN(28) {
			callee := 0
			for callee < 6 && random.IntN(10) < 3 {
				callee++
			}
			frame = (frame*7 + callee*131 + 1) % functions
			stack = append(stack, int32(frame))
		}
		if at := p.Stack(stack...); !sampled[at] {
			sampled[at] = true
			p.Sample(profile.Sample{Thread: int32(random.IntN(threads)), Node: at, CPU: -1,
				Count: uint64(1 + random.IntN(20)), End: profile.Complete})
		}
	}
	return p.Profile
}

// write writes a profile to a file and returns its name.
func write(t testing.TB, p *profile.Profile, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), map[FileType]string{HTML: "flame.html", SVG: "flame.svg"}[o.Format])
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func bytesOf(t *testing.T, p *profile.Profile, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheSameProfileGivesTheSameBytes(t *testing.T) {
	for _, p := range []*profile.Profile{example(), generated(500)} {
		for _, f := range []FileType{HTML, SVG} {
			if !bytes.Equal(bytesOf(t, p, Options{Format: f}), bytesOf(t, p, Options{Format: f})) {
				t.Errorf("format %d: other bytes the second time", f)
			}
		}
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	p := example()
	if err := Write(io.Discard, p, Options{Format: 7}); err == nil {
		t.Error("an unknown format is written")
	}
	p.Samples[0].Node = 99
	if err := Write(io.Discard, p, Options{}); err == nil {
		t.Error("an invalid profile is written")
	}
	p = example()
	for _, f := range []FileType{HTML, SVG} {
		if err := Write(broken{}, p, Options{Format: f}); !errors.Is(err, errBroken) {
			t.Errorf("format %d: %v", f, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// Stacks are merged by function, heaviest first, in preorder.
func TestGraph(t *testing.T) {
	g := newGraph(example())
	self, total := g.counts(1)
	start := starts(g, total)
	var have []string
	for i, n := range g.nodes {
		name := "all"
		if i > 0 {
			name = human.Printable(g.functions[n.function].name)
		}
		have = append(have, fmt.Sprintf("%d %.12s:%d at %d, self %d of %d, up to %d", n.depth, name, n.line,
			start[i], self[i], total[i], n.end))
	}
	want := []string{
		"0 all:0 at 0, self 0 of 1000, up to 10",
		"1 main:20 at 0, self 60 of 960, up to 9",
		"2 qsort:0 at 0, self 0 of 500, up to 5",
		"3 compare:33 at 0, self 400 of 400, up to 4",
		"3 do_syscall_6:0 at 400, self 100 of 100, up to 5",
		"2 Shape<int>:::7 at 500, self 200 of 200, up to 6",
		"2 fib /tmp/fib:0 at 700, self 0 of 150, up to 8",
		"3 fib /tmp/fib:0 at 700, self 150 of 150, up to 8",
		"2 </script><sc:0 at 850, self 50 of 50, up to 9",
		"1 [unmapped]:0 at 960, self 40 of 40, up to 10",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// The picture is XML. Its rectangles show the profile without a script; those that are too narrow are left
// out and counted.
func TestPicture(t *testing.T) {
	type element struct {
		Class string `xml:"class,attr"`
		At    string `xml:"at,attr"`
		Title string `xml:"title"`
		Rect  struct {
			X     float64 `xml:"x,attr"`
			Width float64 `xml:"width,attr"`
		} `xml:"rect"`
		Text string `xml:"text"`
	}
	var svg struct {
		Title  string `xml:"title"`
		Groups []struct {
			ID     string    `xml:"id,attr"`
			Left   int       `xml:"data-left,attr"`
			Frames []element `xml:"g"`
			Texts  []string  `xml:"text"`
		} `xml:"g"`
		Script []string `xml:"script"`
	}
	if err := xml.Unmarshal(bytesOf(t, example(), Options{Format: SVG, Title: hostile}), &svg); err != nil {
		t.Fatal(err)
	}
	if svg.Title != human.Printable(hostile) || len(svg.Script) != 1 {
		t.Errorf("title %q, %d scripts", svg.Title, len(svg.Script))
	}
	seen := make(map[string]element)
	for _, g := range svg.Groups {
		for _, f := range g.Frames {
			seen[strings.SplitN(f.Title, "\n", 2)[0]] = f
		}
	}
	for name, width := range map[string]float64{"main": 0.96, "qsort": 0.5, "compare": 0.4,
		human.Printable(hostile): 0.05} {
		if have := seen[name].Rect.Width; math.Abs(have-width*(svgWidth-2*svgMargin)) > 1.01 {
			t.Errorf("%s is %.1f wide", name, have)
		}
	}
	if text := seen["qsort"].Text; text != "qsort" {
		t.Errorf("qsort's text is %q", text)
	}

	p := generated(5000)
	picture := bytesOf(t, p, Options{Format: SVG})
	if err := xml.Unmarshal(picture, &svg); err != nil {
		t.Fatal(err)
	}
	g := newGraph(p)
	_, total := g.counts(0)
	drawn, least, left := prune(g, total)
	if len(drawn) > mostFrames || left == 0 || uint64(len(drawn))+left != uint64(len(g.nodes)) {
		t.Errorf("%d frames drawn, %d left out of %d", len(drawn), left, len(g.nodes))
	}
	note := fmt.Sprintf("Left out: %s frames narrower than %.2g %%.", human.Number(left), 100*least)
	if !bytes.Contains(picture, []byte(note)) {
		t.Errorf("the picture does not say %q", note)
	}
}

// A stack with more frames than there may be rectangles is cut at its leaf.
func TestPruneCutsDeepStacks(t *testing.T) {
	deep := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "deep"}}, Frames: []profile.Frame{{Name: "recurse", Known: true}},
		Events: []profile.Event{{Name: "cpu-clock"}},
	})
	deep.Add(profile.Thread{Comm: "deep"}, 0, 1, make([]int32, 2*mostFrames)...)
	p := deep.Profile
	g := newGraph(p)
	_, total := g.counts(0)
	drawn, _, left := prune(g, total)
	if len(drawn) != mostFrames || left != mostFrames+1 {
		t.Errorf("%d frames drawn, %d left out", len(drawn), left)
	}
	if picture := bytesOf(t, p, Options{Format: SVG}); !bytes.Contains(picture, []byte(" or deeper.")) {
		t.Error("the picture does not say so")
	}
}

// Nothing that the recorded system says becomes part of the page.
func TestPageIsEscaped(t *testing.T) {
	page := string(bytesOf(t, example(), Options{Title: hostile}))
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(page, "<img") || !utf8.ValidString(page) ||
		strings.ContainsFunc(page, func(r rune) bool { return r < ' ' && r != '\n' }) {
		t.Error("an element, a control character or an invalid byte of a name is in the page")
	}
	if strings.Contains(page, "http:") || strings.Contains(page, "https:") {
		t.Error("the page names an address")
	}
}

func TestSummary(t *testing.T) {
	have := make(map[string]string)
	p := example()
	p.Events[1].Frequency, p.CPUs = 1000, 4
	for _, f := range summary(p) {
		have[f.Name] = f.Value
	}
	for name, want := range map[string]string{
		"Samples":  "1,008 samples of 2 threads in 2.5 s",
		"100 % is": "1.0 s of CPU time: 0.40 of 4 CPUs",
		"Stacks":   "96.0 % of the user stacks are complete (968 of 1,008); no mapping: 4.0 %",
		"Lost":     "3 samples; the kernel throttled sampling 1 time",
		"Events":   "cpu-clock, page-faults",
		"Command":  "unspool record -- " + human.Printable(hostile),
		"Host":     "host 6.1.0 x86_64",
		"Recorded": "2023-11-14 22:13:20 to 22:13:22 UTC",
		"Note":     "no names for " + human.Printable(hostile),
	} {
		if have[name] != want {
			t.Errorf("%s: %q, not %q", name, have[name], want)
		}
	}
}

func TestNotesOfAPageAreFew(t *testing.T) {
	p := example()
	p.Kinds = make(map[string]string)
	for i := range 90 {
		problem := fmt.Sprintf("/lib/%d.so: stripped", i)
		p.Problems = append(p.Problems, problem)
		p.Kinds[problem] = fmt.Sprint("kind ", i%9)
	}
	notes := 0
	for _, f := range summary(p) {
		if f.Name == "Note" {
			notes++
		}
	}
	if notes != 1+profile.MostNotes { // and the one of the recording
		t.Errorf("%d notes", notes)
	}
}
