package counts

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/link"
	"unspool/vmas"
)

// What the summary says of the cost is of the same time: a share of it, and its part for a sample.
func TestCostOfASample(t *testing.T) {
	s := Stats{Samples: 1000, User: 1000, Duration: 2 * time.Second, CPU: time.Second / 10, Busy: 60 * time.Millisecond}
	for limits, want := range map[Settings]string{
		{}:                "unspool took 3.0 % of one CPU, 60.0 µs a sample, and 0.04 s of CPU time to start and to end; ",
		{Converted: true}: "unspool took 0.06 s of CPU time, 60.0 µs a sample; ",
	} {
		var b strings.Builder
		WriteSummary(&b, &s, NewTrouble(), limits, "")
		if !strings.Contains(b.String(), "\n"+want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// TestUnjoined: what is counted of the stacks that were cut off and not completed adds up to their number.
func TestUnjoined(t *testing.T) {
	var s Stats
	s.Ended[unwind.DumpTooShort] = 20
	for outcome, n := range map[link.LookupOutcome]uint64{link.Unseen: 2, link.OneSided: 3, link.Disagree: 4,
		link.Doubtful: 5, link.Joined: 70, link.Read: 80} {
		s.Links[outcome] = n
	}
	want := map[string]uint64{"unseen": 2, "one_sided": 3, "disagree": 4, "doubtful": 5, "not_sought": 6}
	if got := s.unjoined(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
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
		got.Walked(&perfdata.Walked{Sample: new(perfring.Sample), Result: &res})
		if got.FramesBy != want.FramesBy || got.Guessed != test.guessed || got.Frames != uint64(len(test.sources)) {
			t.Errorf("%v: %d frames, %d by each way, %d guessed; want %d, %d", test.sources, got.Frames,
				got.FramesBy, got.Guessed, want.FramesBy, test.guessed)
		}
	}
}

// TestSumAddsEveryCount adds up two lanes of which every count is another number. What is measured once for
// the whole process is not added up.
func TestSumAddsEveryCount(t *testing.T) {
	once := []string{"Written", "Command", "Duration", "CPU", "Start", "Busy", "MaxRSS", "Priority", "OfflineCPUs",
		"Rings", "Forgotten", "LeftOut", "CommandLines"}
	var lanes [2]Stats
	next := uint64(0)
	for i, times := range []uint64{1, 1000} {
		next = 0
		each(reflect.ValueOf(&lanes[i]).Elem(), once, func(_ string, v reflect.Value) {
			next++
			v.SetUint(next * times)
		})
	}
	total := Sum(lanes[:])
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
	trouble := NewTrouble()
	kinds := map[string]vmas.Kind{
		"//anon": vmas.Anonymous, "/dev/zero": vmas.Shared, "[heap]": vmas.Heap, "[stack]": vmas.Stack,
		"/bin/true": vmas.Regular, "/memfd:closed": vmas.Memfd,
	}
	for path, kind := range kinds {
		at := &vmas.Mapping{File: &vmas.File{Path: path, Kind: kind}}
		trouble.NoteEnd(unwind.NoCFI, PathOf(at))
	}
	want := []WalkEnd{{GeneratedCode, 4}, {"/bin/true", 1}, {"/memfd:closed", 1}}
	if got := trouble.Places(unwind.NoCFI); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, []byte("MZ is how Windows' programs begin"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[uint32]string{vmas.FlagShared: GeneratedCode, vmas.FlagPrivate: path} {
		at := vmas.NewTable("").Mmap(1, vmas.Map{Len: 4096, Prot: vmas.ProtExec, Flags: flags, Name: []byte(path)})
		if im := image.NewStore("/proc").Lookup(uint32(os.Getpid()), at); im.Parse() != nil || !im.IsGenerated() {
			t.Fatalf("%v", im.Parse())
		}
		if got := PathOf(at); got != want {
			t.Errorf("flags %d: %q, want %q", flags, got, want)
		}
	}
	if got, want := placeName(GeneratedCode), "code generated at run time"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMemoryThatIsNotReadIsNoFile: what is said of memory is said of no file, also not of samples outside of any
// mapping, and each of it is said, once, however many files are named.
func TestMemoryThatIsNotReadIsNoFile(t *testing.T) {
	one, all := NewTrouble(), NewTrouble()
	here, there := errors.New("memory: a read hangs"), errors.New("memory of 8 processes: reads hang")
	for range 2 {
		one.NoteMemory(here)
		one.NoteEnd(unwind.Unmapped, "")
	}
	for i := range maxTrouble {
		all.NoteFile(fmt.Sprint(i), errors.New("not found"))
	}
	all.NoteMemory(there)
	all.Add(one)
	var b strings.Builder
	WriteFiles(&b, all)
	for _, err := range []error{here, there} {
		if n := strings.Count(b.String(), "not used: "+printed(err.Error())+"\n"); n != 1 {
			t.Errorf("%q is said %d times", err, n)
		}
	}
	if got := advice(unwind.Unmapped, all, Settings{}); !strings.Contains(got, "outside of any mapping (2)") ||
		strings.Contains(got, "memory") {
		t.Errorf("of samples outside of any mapping it says %q", got)
	}
}
