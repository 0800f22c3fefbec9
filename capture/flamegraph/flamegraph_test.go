package flamegraph

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/unwind"
)

// hostile is what a recorded system can call its functions, threads and files.
const hostile = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&amp;\x00\x1b[31m\u202e\xff\xfe'\"`${1}]]>"

// example has 1,000 samples of two threads, with all kinds of frames.
func example() *profile.Profile {
	p := &profile.Profile{
		Images: []profile.Image{{Name: "program"}, {Name: "libc.so.6"}, {Name: "[kernel]"}, {Name: "[heap]"}, {Name: "[unmapped]"}},
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
		Nodes: []profile.Node{
			{Parent: -1, Frame: -1},
			{Parent: 0, Frame: 0}, // 1: main:12
			{Parent: 0, Frame: 1}, // 2: main:20
			{Parent: 1, Frame: 2}, // 3: area
			{Parent: 2, Frame: 3}, // 4: qsort
			{Parent: 4, Frame: 4}, // 5: compare
			{Parent: 4, Frame: 5}, // 6: syscall
			{Parent: 2, Frame: 6}, // 7: fib
			{Parent: 7, Frame: 6}, // 8: fib
			{Parent: 0, Frame: 7}, // 9: unmapped
			{Parent: 2, Frame: 8}, // 10: hostile
		},
		Threads: []profile.Thread{{PID: 100, TID: 100, Comm: "program"}, {PID: 100, TID: 101, Comm: hostile}},
		Events:  []profile.Event{{Name: "dummy"}, {Name: "cpu-clock", Clock: true}, {Name: "page-faults"}},
		Samples: []profile.Sample{
			{Node: 3, Event: 1, CPU: -1, Count: 200, Period: 200, End: profile.Complete},
			{Node: 5, Event: 1, CPU: -1, Count: 300, Period: 300, End: profile.Complete},
			{Node: 6, Event: 1, CPU: -1, Count: 100, Period: 100, End: profile.Complete},
			{Node: 8, Event: 1, CPU: -1, Count: 150, Period: 150, End: profile.Complete},
			{Node: 5, Event: 1, Thread: 1, CPU: -1, Count: 100, Period: 100, End: profile.Complete},
			{Node: 2, Event: 1, Thread: 1, CPU: -1, Count: 60, Period: 60, End: profile.Complete},
			{Node: 9, Event: 1, Thread: 1, CPU: -1, Count: 40, Period: 40, End: profile.Ended(unwind.Unmapped)},
			{Node: 10, Event: 1, Thread: 1, CPU: -1, Count: 50, Period: 50, End: profile.Complete},
			{Node: 7, Event: 2, CPU: -1, Count: 8, Period: 8, End: profile.Complete},
		},
		LostSamples: 3, Throttled: 1, Duration: 2500 * time.Millisecond, Began: time.Unix(1700000000, 0),
		Hostname: "host", OSRelease: "6.1.0", Arch: "x86_64", Command: []string{"unspool", "record", "--", hostile},
		Problems: []string{"no names for " + hostile},
	}
	return p
}

// generated has distinct stacks of a random tree, as a large program has: few functions near the root, many at the leaves.
func generated(stacks int) *profile.Profile {
	random := rand.New(rand.NewPCG(1, 2))
	p := &profile.Profile{
		Nodes:    []profile.Node{{Parent: -1, Frame: -1}},
		Threads:  make([]profile.Thread, 64),
		Events:   []profile.Event{{Name: "cpu-clock", Clock: true}},
		Duration: time.Minute,
	}
	for i := range p.Threads {
		p.Threads[i] = profile.Thread{PID: uint32(100 + i/8), TID: uint32(100 + i), Comm: fmt.Sprintf("worker-%d", i/8)}
	}
	for i := range 40 {
		p.Images = append(p.Images, profile.Image{Name: fmt.Sprintf("lib%d.so", i)})
	}
	const functions = 20000
	for i := range functions {
		p.Frames = append(p.Frames, profile.Frame{
			Name:  fmt.Sprintf("project::module%d::Handler<std::vector<Item%d>>::process_%d(Context const&, unsigned long)", i%300, i%17, i),
			Image: int32(i % 40), Kind: []profile.Kind{0, 0, 0, 0, 0, profile.Kernel, profile.JIT}[i%7], Known: true, PC: uint64(i + 1), File: fmt.Sprintf("src/module%d.cc", i%300), Line: int32(i%900 + 1),
		})
	}
	type call struct{ parent, frame int32 }
	known := map[call]int32{}
	leaves := map[int32]bool{}
	for len(leaves) < stacks {
		at := int32(0)
		for d := range 12 + random.IntN(40) {
			f := int32(d * 97 % functions)
			if d > 6 && random.IntN(3) == 0 {
				f = int32(random.IntN(min(functions, 20*(d+1)*(d+1))))
			}
			c := call{at, f}
			next, ok := known[c]
			if !ok {
				next = int32(len(p.Nodes))
				known[c] = next
				p.Nodes = append(p.Nodes, profile.Node{Parent: at, Frame: f})
			}
			at = next
		}
		if !leaves[at] {
			leaves[at] = true
			p.Samples = append(p.Samples, profile.Sample{Thread: int32(random.IntN(64)), Node: at, CPU: -1, Count: uint64(1 + random.IntN(20)), End: profile.Complete})
		}
	}
	return p
}

// write writes a profile to a file and returns its name.
func write(t testing.TB, p *profile.Profile, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), map[Format]string{HTML: "flame.html", SVG: "flame.svg"}[o.Format])
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
