package capture

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/link"
	"unspool/vmas"
)

// outermost is the address that the outermost function of a goroutine returns to: a walk is complete there.
func outermost(t *testing.T) uint64 {
	t.Helper()
	var pcs [1000]uintptr
	n := runtime.Callers(0, pcs[:])
	pc := pcs[n-1]
	if f := runtime.FuncForPC(pc); f == nil || f.Name() != "runtime.goexit" {
		t.Fatalf("the outermost function is %v", f)
	}
	return uint64(pc)
}

// mapThisProgram tells a session's table of the code of this process.
func mapThisProgram(t *testing.T, s *Session, pc uint64) (pid uint32) {
	t.Helper()
	pid = uint32(os.Getpid())
	space, err := vmas.NewTable("/proc").Seed(pid)
	if err != nil {
		t.Fatal(err)
	}
	m := space.Find(pc)
	told := vmas.Map{
		Addr: m.Start, Len: m.End - m.Start, Offset: m.Offset, Prot: m.Prot,
		Name: []byte(m.File.Name()), ID: m.File.FileID,
	}
	s.images.Open(pid, s.table.Mmap(pid, told))
	return pid
}

// TestStatsAddUp compares what a session has counted with the records that it was given.
func TestStatsAddUp(t *testing.T) {
	const kernel, loader = ^uint64(127), 0xffffffff81003123
	s := newTestSession(discard{})
	s.execve = execve{kernelCode: kernelCode{
		loaders: []kernelRange{{0xffffffff81003000, 0xffffffff81003800}},
	}}
	s.recorded = true
	s.table.Comm(7, 7, []byte("seven"), true)
	s.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})
	goexit := outermost(t)
	complete := userSample(mapThisProgram(t, s, goexit), goexit)
	pointer := func(bp uint64) testSample { // BP leads to a frame, and from there to bp
		f := userSample(7, 0x1234)
		f.bp = 0x7010
		binary.LittleEndian.PutUint64(f.stack[16:], bp)
		binary.LittleEndian.PutUint64(f.stack[24:], 0x1800)
		return f
	}
	ends := pointer(0)
	ends.dynSize = 48 // of the 64 bytes that were set aside
	inside := userSample(7, 0x1234)
	inside.misc, inside.chain, inside.dynSize = unix.PERF_RECORD_MISC_KERNEL, []uint64{kernel, loader}, 0
	damaged := userSample(7, 0x1234)
	damaged.dynSize = 1 << 40

	f := testFormat()
	id := &perfring.SampleID{PID: 7, TID: 7, Time: 5, ID: 1}
	lost, err := perfring.AppendLost(nil, &f, &perfring.Lost{ID: 1, Lost: 5}, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []perfring.Record{
		complete.record(), userSample(7, 0x5000).record(), userSample(7, 0x5000).record(), ends.record(),
		pointer(0x8000).record(),
		testSample{pid: 2, misc: unix.PERF_RECORD_MISC_KERNEL, chain: []uint64{kernel, 9}}.record(),
		inside.record(), damaged.record(),
		lost, rawRecord(perfring.RecordLostSamples, 6, 1, 3, 0, 0, 0, 0, 0, 0, 0),
		rawRecord(perfring.RecordThrottle, 7, 1, make([]byte, 24)...),
	} {
		if err := s.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	stats := s.counted()
	stats.Duration, stats.CPU, stats.Busy = 2*time.Second, time.Second/10, 14*time.Microsecond
	stats.Priority = "real-time 1"
	stats.MaxRSS, stats.Written, stats.Command = 1<<20, 5000, []string{"a&b"}

	var b strings.Builder
	if err := stats.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var j struct {
		Version  int
		Command  []string
		Duration float64 `json:"duration_s"`
		Samples  map[string]any
		Unwind   struct {
			Complete, Frames uint64
			CompleteBy       map[string]uint64 `json:"complete_by"`
			Ended, Cut       map[string]uint64
			Unjoined         map[string]uint64
			FramesBy         map[string]uint64 `json:"frames_by"`
		}
		Cost  map[string]any
		Bytes map[string]uint64
	}
	if err := json.Unmarshal([]byte(b.String()), &j); err != nil {
		t.Fatal(err)
	}
	if j.Version != 1 || !slices.Equal(j.Command, stats.Command) || j.Duration != 2 {
		t.Errorf("version %d, command %q, duration %v", j.Version, j.Command, j.Duration)
	}
	for _, c := range []struct {
		name      string
		got, want map[string]uint64
	}{
		{"samples", numbers(j.Samples), map[string]uint64{
			"total": 7, "user": 5, "kernel_only": 2, "exec": 1, "lost": 8, "throttled": 1, "malformed": 1,
			"denied": 0, "excluded": 0}},
		{"ended", j.Unwind.Ended, map[string]uint64{"root": 1, "unmapped": 2, "no_cfi": 1, "dump_too_short": 1,
			"no_image": 0, "bad_cfi": 0, "depth_limit": 0, "unknown_register": 0, "not_copied": 0}},
		{"complete by", j.Unwind.CompleteBy, map[string]uint64{"cfi": 1, "fallback": 0, "joined": 0}},
		{"cut", j.Unwind.Cut, map[string]uint64{"too_deep": 1, "gap": 0, "no_copy": 0}},
		{"unjoined", j.Unwind.Unjoined, map[string]uint64{"unseen": 0, "one_sided": 0, "disagree": 0, "doubtful": 0,
			"not_sought": 1}},
		{"bytes", j.Bytes, map[string]uint64{"stack_copied": 64 + 2*64 + 48 + 64, "written": 5000}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if j.Unwind.Complete != 1 || j.Unwind.Frames != 1+2*1+2+2 {
		t.Errorf("%d complete, %d frames", j.Unwind.Complete, j.Unwind.Frames)
	}
	if sum := sumOf(j.Unwind.FramesBy); sum != 7 || j.Unwind.FramesBy["sample"] != 5 ||
		j.Unwind.FramesBy["frame_pointer"] != 2 {
		t.Errorf("frames by %v", j.Unwind.FramesBy)
	}
	cost := map[string]any{"cpu_s": 0.1, "cpu_share": 7e-06, "us_per_sample": 2.0,
		"max_rss_bytes": float64(1 << 20), "priority": "real-time 1"}
	if !maps.Equal(j.Cost, cost) {
		t.Errorf("cost %v, want %v", j.Cost, cost)
	}
}

// What the summary says of the cost is of the same time: a share of it, and its part for a sample.
func TestCostOfASample(t *testing.T) {
	s := Stats{Samples: 1000, User: 1000, Duration: 2 * time.Second, CPU: time.Second / 10, Busy: 60 * time.Millisecond}
	for limits, want := range map[Limits]string{
		{}:                "unspool took 3.0 % of one CPU, 60.0 µs a sample, and 0.04 s of CPU time to start and to end; ",
		{Converted: true}: "unspool took 0.06 s of CPU time, 60.0 µs a sample; ",
	} {
		var b strings.Builder
		WriteSummary(&b, &s, newTrouble(), limits, "")
		if !strings.Contains(b.String(), "\n"+want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// TestUnjoined: what is counted of the stacks that were cut off and not completed adds up to their number.
func TestUnjoined(t *testing.T) {
	var s Stats
	s.Ended[unwind.DumpTooShort] = 20
	for outcome, n := range map[link.Outcome]uint64{link.Unseen: 2, link.OneSided: 3, link.Disagree: 4,
		link.Doubtful: 5, link.Joined: 70, link.Read: 80} {
		s.Links[outcome] = n
	}
	want := map[string]uint64{"unseen": 2, "one_sided": 3, "disagree": 4, "doubtful": 5, "not_sought": 6}
	if got := s.unjoined(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// numbers are the members of a JSON object that are numbers.
func numbers(object map[string]any) map[string]uint64 {
	found := make(map[string]uint64)
	for name, v := range object {
		if n, ok := v.(float64); ok {
			found[name] = uint64(n)
		}
	}
	return found
}

func sumOf(counts map[string]uint64) (n uint64) {
	for _, v := range counts {
		n += v
	}
	return n
}

// A complete stack is guessed when one of its frames is neither the sampled PC nor by CFI.
func TestHowFramesWereFoundIsCounted(t *testing.T) {
	const sample, cfi, fp = unwind.BySample, unwind.ByCFI, unwind.ByFramePointer
	for _, test := range []struct {
		sources []unwind.Source
		end     unwind.Reason
		guessed uint64
	}{
		{nil, unwind.Unmapped, 0},
		{[]unwind.Source{sample}, unwind.Root, 0},
		{[]unwind.Source{sample, cfi, cfi}, unwind.Root, 0},
		{[]unwind.Source{sample, cfi, fp, cfi}, unwind.Root, 1},
		{[]unwind.Source{sample, fp, fp}, unwind.DumpTooShort, 0},
		{[]unwind.Source{fp, cfi}, unwind.Root, 1},
	} {
		var got, want Stats
		res := unwind.Result{End: test.end}
		for _, by := range test.sources {
			res.IPs, res.Frames = append(res.IPs, 1), append(res.Frames, unwind.Frame{Source: by})
			want.FramesBy[by]++
		}
		got.FramesBy[sample], want.FramesBy[sample] = 5, want.FramesBy[sample]+5 // of other stacks
		got.count(new(perfring.Sample), &res, false)
		if got.FramesBy != want.FramesBy || got.Guessed != test.guessed || got.Frames != uint64(len(test.sources)) {
			t.Errorf("%v: %d frames, %d by each way, %d guessed; want %d, %d", test.sources, got.Frames,
				got.FramesBy, got.Guessed, want.FramesBy, test.guessed)
		}
	}
}

// TestSumAddsEveryCount adds up two lanes of which every count is another number. What is measured once for
// the whole process is not added up.
func TestSumAddsEveryCount(t *testing.T) {
	once := []string{"Written", "Command", "Duration", "CPU", "Busy", "MaxRSS", "Priority", "OfflineCPUs",
		"Forgotten", "LeftOut", "CommandLines"}
	var lanes [2]Stats
	next := uint64(0)
	for i, times := range []uint64{1, 1000} {
		next = 0
		each(reflect.ValueOf(&lanes[i]).Elem(), once, func(_ string, v reflect.Value) {
			next++
			v.SetUint(next * times)
		})
	}
	total := sum(lanes[:])
	next = 0
	each(reflect.ValueOf(&total).Elem(), once, func(name string, v reflect.Value) {
		next++
		if v.Uint() != 1001*next {
			t.Errorf("%s is %d, want %d", name, v.Uint(), 1001*next)
		}
	})
	if next < 15 {
		t.Errorf("%d counts", next)
	}
}

// each calls fn with the counts of a Stats.
func each(stats reflect.Value, leaveOut []string, fn func(name string, v reflect.Value)) {
	for i := range stats.NumField() {
		name, v := stats.Type().Field(i).Name, stats.Field(i)
		if slices.Contains(leaveOut, name) {
			continue
		}
		if v.Kind() != reflect.Array {
			fn(name, v)
			continue
		}
		for k := range v.Len() {
			fn(name, v.Index(k))
		}
	}
}

// TestGeneratedCodeHasOneName: runtimes keep it in memory of several names.
func TestGeneratedCodeHasOneName(t *testing.T) {
	trouble := newTrouble()
	kinds := map[string]vmas.Kind{
		"//anon": vmas.Anonymous, "/dev/zero": vmas.Shared, "[heap]": vmas.Heap, "[stack]": vmas.Stack,
		"/bin/true": vmas.Regular, "/memfd:closed": vmas.Memfd,
	}
	for path, kind := range kinds {
		at := &vmas.Mapping{File: &vmas.File{Path: path, Kind: kind}}
		trouble.ended(unwind.NoCFI, codePath(at))
	}
	want := []Place{{generatedCode, 4}, {"/bin/true", 1}, {"/memfd:closed", 1}}
	if got := trouble.Places(unwind.NoCFI); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, []byte("MZ is how Windows' programs begin"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[uint32]string{vmas.FlagShared: generatedCode, vmas.FlagPrivate: path} {
		at := vmas.NewTable("").Mmap(1, vmas.Map{Len: 4096, Prot: vmas.ProtExec, Flags: flags, Name: []byte(path)})
		if im := image.NewStore("/proc").Lookup(uint32(os.Getpid()), at); im.Parse() != nil || !im.IsGenerated() {
			t.Fatalf("%v", im.Parse())
		}
		if got := codePath(at); got != want {
			t.Errorf("flags %d: %q, want %q", flags, got, want)
		}
	}
	if got, want := placeName(generatedCode), "code generated at run time"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMemoryThatIsNotReadIsNoFile: what is said of memory is said of no file, also not of samples outside of any
// mapping, and each of it is said, once, however many files are named.
func TestMemoryThatIsNotReadIsNoFile(t *testing.T) {
	one, all := newTrouble(), newTrouble()
	for range 2 {
		one.unread(errRestHangs)
		one.ended(unwind.Unmapped, "")
	}
	for i := range maxTrouble {
		all.file(fmt.Sprint(i), errors.New("not found"))
	}
	all.unread(errMemoryHangs)
	all.add(one)
	var b strings.Builder
	WriteFiles(&b, all)
	for _, err := range []error{errRestHangs, errMemoryHangs} {
		if n := strings.Count(b.String(), "not used: "+printed(err.Error())+"\n"); n != 1 {
			t.Errorf("%q is said %d times", err, n)
		}
	}
	if got := advice(unwind.Unmapped, all, Limits{}); !strings.Contains(got, "outside of any mapping (2)") ||
		strings.Contains(got, "memory") {
		t.Errorf("of samples outside of any mapping it says %q", got)
	}
}
