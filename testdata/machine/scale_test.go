package machine

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"
)

var scale = flag.Bool("scale", false, "run large machines, and print what they cost, by TestScale")

// ofRecorder reports whether a stack is of the recorder: it is if it was called last by a function that runs the
// recorder, and not by one that simulates something for it. known is false for what the runtime does by itself.
func ofRecorder(s *profile.Sample) (is, known bool) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			name := line.Function.Name
			known = known || strings.HasPrefix(name, "unspool/")
			if name, ok := strings.CutPrefix(name, "unspool/testdata/machine."); ok {
				is := name == "watch" || strings.HasPrefix(name, "(*run).session") || strings.HasPrefix(name, "(*run).record")
				return is, true
			}
		}
	}
	return known, known
}

// sum adds up what a profile says of the recorder, and of the machine.
func sum(t *testing.T, data []byte, kind string) (recorder, machine int64) {
	t.Helper()
	p, err := profile.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == kind })
	for _, s := range p.Sample {
		switch is, known := ofRecorder(s); {
		case is:
			recorder += s.Value[i]
		case known:
			machine += s.Value[i]
		}
	}
	return recorder, machine
}

// heapInUse is how many bytes are in use.
func heapInUse(t *testing.T) (recorder, machine int64) {
	t.Helper()
	runtime.GC() // what is profiled is as of the last but one
	runtime.GC()
	var b bytes.Buffer
	if err := pprof.Lookup("heap").WriteTo(&b, 0); err != nil {
		t.Fatal(err)
	}
	if dump := os.Getenv("SCALE_HEAP"); dump != "" {
		os.WriteFile(fmt.Sprint(dump, time.Now().Hour()), b.Bytes(), 0o644)
	}
	return sum(t, b.Bytes(), "inuse_space")
}

// descriptors is how many this process has.
func descriptors() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

// A figure is what was measured at a time of a recording.
type figure struct {
	at                      time.Duration
	heap, machine           int64
	goroutines, descriptors int
}

// measure runs a plan, and looks at what it has in use at some times.
func measure(t *testing.T, p Plan, files []*file, at ...time.Duration) (res *Result, all []figure) {
	t.Helper()
	folder := t.TempDir()
	defer os.RemoveAll(folder)
	synctest.Test(t, func(t *testing.T) {
		res = watch(p, files, folder, func(r *run) {
			if now := time.Since(r.began); len(at) > 0 && now >= at[0] {
				at = at[1:]
				f := figure{at: now, goroutines: runtime.NumGoroutine(), descriptors: descriptors()}
				f.heap, f.machine = heapInUse(t)
				all = append(all, f)
			}
		})
	})
	for _, problem := range res.Problems {
		t.Errorf("%v: %s", p, problem)
	}
	return res, all
}

// profiled is the CPU time that something takes.
func profiled(t *testing.T, of func()) (recorder, machine time.Duration) {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		t.Fatal(err)
	}
	of()
	pprof.StopCPUProfile()
	if dump := os.Getenv("SCALE_CPU"); dump != "" {
		os.WriteFile(dump, b.Bytes(), 0o644)
	}
	r, m := sum(t, b.Bytes(), "cpu")
	return time.Duration(r), time.Duration(m)
}

var large1 = flag.String("one", "", "only these")

// dimensions are the ways in which machines are large, each in three sizes with the same work.
func dimensions() (all []dimension) {
	for i, n := range []int{16, 64, 256} {
		all = append(all, dimension{fmt.Sprintf("%d CPUs", n), Plan{CPUs: n, Processes: 256, Threads: 2,
			Time: 4 * time.Second << (4 - 2*i), Copy: 2048, Ring: 1 << 18, Output: "file", Period: 2 * time.Millisecond}})
	}
	for i, n := range []int{625, 2500, 10000} {
		all = append(all, dimension{fmt.Sprintf("%d processes a second", n), Plan{CPUs: 16, Processes: n / 20,
			Threads: 2, Time: 4 * time.Second << (4 - 2*i), Copy: 2048, Ring: 1 << 20, Output: "file", Rate: n,
			Period: time.Second * 16 / time.Duration(3*n), Faults: []string{"reuse"}}})
	}
	for _, n := range []int{2048, 16384, 131072} {
		all = append(all, dimension{fmt.Sprintf("%d mappings", n), Plan{CPUs: 2, Processes: 4, Threads: 2,
			Time: 40 * time.Second, Copy: 4096, Ring: 1 << 21, Output: "judge", Maps: n, Period: 10 * time.Millisecond}})
	}
	for i, n := range []int{1000, 4000, 16000} {
		all = append(all, dimension{fmt.Sprintf("%d run already", n), Plan{CPUs: 64, Processes: n, Threads: 2,
			Time: 2 * time.Second << (4 - 2*i), Copy: 2048, Ring: 1 << 18, Output: "file", Period: 2 * time.Millisecond << (4 - 2*i)}})
	}
	for i, n := range []int{250, 1000, 4000} {
		all = append(all, dimension{fmt.Sprintf("losses beside %d", n), Plan{CPUs: 256, Processes: n, Threads: 2,
			Time: 2 * time.Second << (4 - 2*i), Copy: 512, Ring: 1 << 16, Output: "judge", Rate: 10000>>(4-2*i), Period: 6 * time.Millisecond << (4 - 2*i)}})
	}
	for _, output := range Outputs[1:] {
		all = append(all, dimension{"a day as " + output, Plan{CPUs: 2, Processes: 8, Threads: 4, Time: 24 * time.Hour,
			Copy: 4096, Ring: 1 << 20, Join: true, Output: output, Period: 500 * time.Millisecond,
			Faults: []string{"fork", "exec", "exits", "reuse", "vanish", "dlclose", "limit"}}})
	}
	return all
}

type dimension struct {
	name string
	plan Plan
}

func TestScale(t *testing.T) {
	files, err := Files(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	runtime.MemProfileRate = 4096
	for _, d := range dimensions() {
		if !strings.Contains(d.name, *large1) {
			continue
		}
		var all Result
		all.Reached = make(map[string]int)
		var last figure
		cpu, machine := profiled(t, func() {
			d.plan.Seed = 1
			res, f := measure(t, d.plan, files, d.plan.Time/12, d.plan.Time/4, d.plan.Time/2, d.plan.Time*9/10)
			all.add(res)
			for _, f := range f {
				t.Logf("%+v", f)
				last = f
			}
		})
		records := 0
		for what, n := range all.Reached {
			if strings.ToUpper(what) == what {
				records += n
			}
		}
		t.Logf("%s: %d records %d samples %v ended %v reached %v: %v recorder %.2f µs/record, machine %v; heap %d", d.name, records, all.Samples, 0,
			all.Ended, all.Reached, cpu, float64(cpu.Microseconds())/float64(records), machine, last.heap)
	}
}
