package machine

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"

	"unspool/capture/live"
	"unspool/perfring"
)

var (
	scale = flag.Bool("scale", false, "run large machines, and print what they take, by TestScale")
	only  = flag.String("only", "", "of these, those whose names begin so")
)

// ofRecorder reports whether a stack is of the recorder: the function of this package that was called last is one that
// runs the recorder, and none that simulates something for it. known is false for what the runtime does by itself.
func ofRecorder(s *profile.Sample) (is, known bool) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			name := line.Function.Name
			known = known || strings.HasPrefix(name, "unspool/")
			if name, ok := strings.CutPrefix(name, "unspool/testdata/machine."); ok {
				runs := name == "watch" || strings.HasPrefix(name, "(*run).session") || strings.HasPrefix(name, "(*run).record")
				return runs, true
			}
		}
	}
	return known, known
}

// ofRecorders adds up what a profile says of the recorder.
func ofRecorders(t *testing.T, data []byte, kind string) (sum int64) {
	t.Helper()
	p, err := profile.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == kind })
	for _, s := range p.Sample {
		if is, _ := ofRecorder(s); is {
			sum += s.Value[i]
		}
	}
	return sum
}

// A use is what the recorder has in use at a time.
type use struct {
	at                      time.Duration
	heap                    int64
	goroutines, descriptors int
}

func (u use) String() string {
	return fmt.Sprintf("%.2f MB, %d descriptors, %d goroutines", float64(u.heap)/1e6, u.descriptors, u.goroutines)
}

// useAt measures it. Goroutines and descriptors are those of the whole process, of which nothing else runs.
func useAt(t *testing.T, at time.Duration) use {
	t.Helper()
	runtime.GC() // a profile is as of the last but one
	runtime.GC()
	var b bytes.Buffer
	if err := pprof.Lookup("heap").WriteTo(&b, 0); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return use{at, ofRecorders(t, b.Bytes(), "inuse_space"), runtime.NumGoroutine(), len(all)}
}

// measure runs a plan, judges it, and looks at what is in use at some times.
func measure(t *testing.T, p Plan, files []*file, at ...time.Duration) (res *Result, all []use) {
	t.Helper()
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	if runtime.MemProfileRate = 512; *scale {
		runtime.MemProfileRate = 64 << 10 // taking it costs the recorder time
	}
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		res = watch(p, files, folder, func(r *run) {
			if now := time.Since(r.began); len(at) > 0 && now >= at[0] {
				at = at[1:]
				all = append(all, useAt(t, now))
			}
		})
	})
	_ = os.RemoveAll(folder)
	for _, problem := range res.Problems {
		t.Errorf("%v\n\t%s", p, problem)
	}
	if n := res.Reached["lost"]; n > 0 {
		t.Errorf("%v: %d records were lost", p, n)
	}
	return res, all
}

// cpuOf is the CPU time that the recorder takes in what a function does.
func cpuOf(t *testing.T, do func()) time.Duration {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		t.Fatal(err)
	}
	do()
	pprof.StopCPUProfile()
	return time.Duration(ofRecorders(t, b.Bytes(), "cpu"))
}

// records is how many records were written.
func (r *Result) records() (all int) {
	for what, n := range r.Reached {
		if what == strings.ToUpper(what) { // a type of record
			all += n
		}
	}
	return all
}

// A dimension is a way in which machines are large.
type dimension struct {
	name  string
	sizes [3]int
	plan  func(n, times int) Plan // times is 16 for the first size, then 4, then 1
}

// dimensions are these ways. As much happens on the machines of all sizes.
var dimensions = []dimension{
	{"CPUs", [3]int{16, 64, 256}, func(n, times int) Plan {
		return Plan{CPUs: n, Processes: 256, Threads: 2, Time: time.Duration(2*times) * time.Second, Copy: 2048,
			Ring: 1 << 18, Output: "file", Period: 2 * time.Millisecond}
	}},
	{"processes started a second", [3]int{625, 2_500, 10_000}, func(n, times int) Plan {
		return Plan{CPUs: 16, Processes: n / 20, Threads: 2, Time: time.Duration(3*times) * time.Second, Copy: 2048,
			Ring: 1 << 20, Output: "file", Rate: n, Period: 16 * time.Second / time.Duration(3*n),
			Faults: []string{"reuse", "fresh"}}
	}},
	{"processes that run already", [3]int{1_000, 4_000, 16_000}, func(n, times int) Plan {
		return Plan{CPUs: 64, Processes: n, Threads: 2, Time: time.Duration(4*times) * time.Second, Copy: 2048, Ring: 1 << 18,
			Output: "file", Period: time.Duration(2*times) * time.Millisecond}
	}},
	{"mappings of a process", [3]int{2_048, 16_384, 131_072}, func(n, _ int) Plan {
		return Plan{CPUs: 2, Processes: 4, Threads: 2, Time: 40 * time.Second, Copy: 4096, Ring: 1 << 21, Output: "judge",
			Maps: n, Period: 10 * time.Millisecond}
	}},
}

// long is a plan of a long recording.
func long(output string, hours int) Plan {
	return Plan{Seed: 1, CPUs: 2, Processes: 8, Threads: 4, Time: time.Duration(hours) * time.Hour, Copy: 4096,
		Ring: 1 << 20, Join: true, Output: output, Period: 500 * time.Millisecond,
		Faults: []string{"fork", "exec", "exits", "reuse", "vanish", "dlclose", "limit"}}
}

// TestScale judges machines that are large in one way, and looks whether what is in use levels off. With -scale these
// are as large as bench/SIMULATION.md says, and what they take is printed.
func TestScale(t *testing.T) {
	files, err := Files(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("the race detector takes memory, too")
	}
	if *scale {
		printSizes(t, files)
		printDays(t, files)
		printRings(t, files)
		return
	}
	for _, p := range []Plan{
		{Seed: 1, CPUs: 64, Processes: 64, Threads: 2, Time: 150 * time.Millisecond, Copy: 2048, Ring: 1 << 18,
			Output: "file", Period: 2 * time.Millisecond},
		{Seed: 1, CPUs: 16, Processes: 100, Threads: 2, Time: time.Second, Copy: 2048, Ring: 1 << 20, Output: "file",
			Rate: 2_500, Period: 2 * time.Millisecond, Faults: []string{"reuse"}},
		{Seed: 1, CPUs: 4, Processes: 4, Threads: 2, Time: 2 * time.Second, Copy: 2048, Ring: 1 << 21, Output: "judge",
			Maps: 5_000, Period: 10 * time.Millisecond},
		long("flight", 2),
		long("segments", 2),
	} {
		_, u := measure(t, p, files, p.Time/2, p.Time*9/10)
		if len(u) < 2 {
			t.Fatalf("%v was looked at %d times", p, len(u))
		}
		if p.Maps == 0 && u[1].heap > u[0].heap+mostGrowth || u[1].descriptors > u[0].descriptors+4 ||
			u[1].goroutines > u[0].goroutines+4 {
			t.Errorf("%v\n\tin use are %v after half of the time, and %v at its end", p, u[0], u[1])
		}
	}
}

// mostGrowth is what tables may grow by that are bounded. A thousand processes would take twice as much, or 3,000
// samples.
const mostGrowth = 300_000

// printSizes prints what a record takes on machines of three sizes. These run by turns, as other programs may take
// caches and memory from them for a while.
func printSizes(t *testing.T, files []*file) {
	fmt.Println("| | | records | samples | CPU time | a record | in use |\n|---|--:|--:|--:|--:|--:|--:|")
	for _, d := range dimensions {
		if !strings.HasPrefix(d.name, *only) {
			continue
		}
		var cpu [3]time.Duration
		var most [3]use
		all := [3]Result{{Reached: make(map[string]int)}, {Reached: make(map[string]int)}, {Reached: make(map[string]int)}}
		for seed := range uint64(3) {
			for i, n := range d.sizes {
				p := d.plan(n, 16>>(2*i))
				p.Seed = seed
				cpu[i] += cpuOf(t, func() {
					res, uses := measure(t, p, files, p.Time/2, p.Time*9/10)
					all[i].add(res)
					most[i] = slices.MaxFunc(append(uses, most[i]), func(a, b use) int { return cmp.Compare(a.heap, b.heap) })
				})
			}
		}
		for i, n := range d.sizes {
			records := all[i].records()
			fmt.Printf("| %s | %d | %d | %d | %.2f s | %.2f µs | %v |\n", d.name, n, records, all[i].Samples, cpu[i].Seconds(),
				float64(cpu[i].Nanoseconds())/1e3/float64(records), most[i])
		}
	}
}

// withoutCPU is how long the recorder does without a CPU, as rings are to last as long.
const withoutCPU = 250 * time.Millisecond

// ringsOf runs a machine of CPUs with the rings that a recording at 999 Hz has there by default, and the copies where
// what they lack is read when a stack is sampled, or not. Once its rings have just been drained, the recorder gets no
// CPU for a while.
func ringsOf(t *testing.T, files []*file, cpus int, isRead bool) (s perfring.RingSizes, total int, res *Result) {
	t.Helper()
	n := perfring.RingNeeds{Rate: 999, Stack: perfring.MaxStackSize, Sampled: cpus, CPUs: cpus}
	if isRead {
		n.Least = live.LeastCopy
	}
	s = n.Sizes()
	p := Plan{Seed: 1, CPUs: cpus, Processes: 64, Threads: 2, Time: 600 * time.Millisecond, Copy: s.Stack,
		Ring: s.Samples, Others: s.Others, Join: true, Reads: isRead, Output: "file", Hz: int(n.Rate)}
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		was := false
		res = watch(p, files, folder, func(r *run) {
			if was || time.Since(r.began) < p.Time/3 || !r.isDrained() {
				return
			}
			was = true
			time.Sleep(withoutCPU)
		})
		if !was {
			t.Errorf("%v: the recorder always had a CPU", p)
		}
	})
	_ = os.RemoveAll(folder)
	for _, problem := range res.Problems {
		t.Errorf("%v\n\t%s", p, problem)
	}
	return s, n.Total(s), res
}

// isDrained reports whether each ring for samples has little more than what no drain takes yet.
func (r *run) isDrained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := uint64(2 * (r.plan.Copy + 1024))
	return !slices.ContainsFunc(r.cpus, func(c *cpu) bool {
		return c.samples.head-atomic.LoadUint64(c.samples.Tail) > most
	})
}

// TestRingsOfManyCPUs: with full copies on few CPUs, and small ones on many, nothing is lost while the recorder has no
// CPU for a quarter of a second. All rings have 256 MiB at most.
func TestRingsOfManyCPUs(t *testing.T) {
	files, err := Files(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cpus, copied int
	}{{2, perfring.MaxStackSize}, {64, 7168}} {
		s, total, res := ringsOf(t, files, c.cpus, true)
		if total > 256<<20 || s.Stack != c.copied || res.Reached["lost"] > 0 || res.Samples < uint64(c.cpus*500) {
			t.Errorf("%d CPUs: %+v, %d bytes in all, %d records of %d lost", c.cpus, s, total, res.Reached["lost"], res.Samples)
		}
	}
}

// printRings prints which rings machines have, and what is lost.
func printRings(t *testing.T, files []*file) {
	if !strings.HasPrefix("rings", *only) {
		return
	}
	fmt.Println("\n| CPUs | the rest of stacks is | ring for samples | for other records | all rings | copy | " +
		"full after | samples | lost |\n|--:|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, cpus := range []int{2, 64, 256} {
		for _, isRead := range []bool{false, true} {
			s, total, res := ringsOf(t, files, cpus, isRead)
			fmt.Printf("| %d | %s | %d KiB | %d KiB | %.1f MiB | %d bytes | %d ms | %d | %d |\n", cpus,
				map[bool]string{false: "not read", true: "read"}[isRead], s.Samples>>10, s.Others>>10, float64(total)/(1<<20),
				s.Stack, s.Lasts(999).Milliseconds(), res.Samples, res.Reached["lost"])
		}
	}
}

// printDays prints what a day of recording has in use after two hours, and at its end.
func printDays(t *testing.T, files []*file) {
	fmt.Println("\n| a day as | samples | CPU time | after 2 hours | after 23 hours |\n|---|--:|--:|--:|--:|")
	for _, output := range Outputs[1:] {
		if !strings.HasPrefix(output, *only) {
			continue
		}
		var res *Result
		var uses []use
		cpu := cpuOf(t, func() { res, uses = measure(t, long(output, 24), files, 2*time.Hour, 23*time.Hour) })
		fmt.Printf("| %s | %d | %.2f s | %v | %v |\n", output, res.Samples, cpu.Seconds(), uses[0], uses[1])
	}
}
