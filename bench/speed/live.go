package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unspool/bench/section"
	"unspool/bench/workloads"
	"unspool/capture/perfdata"
	"unspool/perfring"
)

// A scene has the programs that run while the whole system is recorded.
type scene struct {
	loads []string
	limit limit // µs per sample
}

// scenes keep one CPU busy.
var scenes = []scene{
	{[]string{"python3"}, 2},
	{[]string{"cc1plus"}, 2},
	{[]string{"python3", "50 new processes a second"}, 6},
	{[]string{"500 executable mappings a second"}, 3},
	{[]string{"500 executable mappings a second, of many files"}, 0},
}

const (
	memoryLimit = limit(24) // MiB beyond the rings
	// settle is how long a recording may take to read /proc and to see the running programs first.
	settle = 1500 * time.Millisecond
)

// live records the whole system.
func (b *bench) live() (string, error) {
	unspool, err := b.executable()
	if err != nil {
		return "", err
	}
	t := section.NewTable("one CPU is busy with", "stack, KiB", "samples", "asked, µs/sample", "µs/sample",
		"with its start", "lost", "asked, MiB beside the rings", "MiB beside the rings")
	for _, s := range scenes {
		for _, size := range []int{32768, perfring.MaxStackSize} {
			r, err := b.play(unspool, s.loads, workloads.LastCPU(), size)
			name := strings.Join(s.loads, ", ")
			if err != nil {
				b.leaveOut("live "+name, err)
				continue
			}
			b.say("live, %s, %d KiB: %.2f µs/sample", name, (size+1023)>>10, r.perSample)
			t.Add(name, strconv.Itoa((size+1023)>>10), thousands(r.samples), s.limit.String(),
				s.limit.mark(r.perSample, "%.2f"), fmt.Sprintf("%.2f", r.all),
				r.lostCell(), memoryLimit.String(), memoryLimit.mark(r.memory, "%.1f"))
		}
	}
	load := section.NewTable("load", "stack, KiB", "samples", "µs/sample", "asked, lost", "lost")
	var busy []string
	for range 2 * workloads.CPUs() {
		busy = append(busy, "python3")
	}
	r, err := b.play(unspool, busy, -1, perfring.MaxStackSize)
	if err != nil {
		b.leaveOut("live, load", err)
	} else {
		b.say("live, load %d: %d lost", len(busy), r.lost)
		load.Add(fmt.Sprintf("%d times python3 on %d CPUs", len(busy), workloads.CPUs()), "64",
			thousands(r.samples), fmt.Sprintf("%.2f", r.perSample), "0", r.lostCell())
	}
	return "## Live\n\n" + t.String() + "\n" + load.String(), nil
}

// played is the result of a scene.
type played struct {
	samples   int     // during the measurement
	perSample float64 // µs, during the measurement
	all       float64 // from the first event to the last, the scan of /proc included
	lost      int
	memory    float64 // MiB beside the rings
}

func (p *played) lostCell() string {
	if p.lost > 0 {
		return "**" + thousands(p.lost) + "**"
	}
	return "0"
}

// play records the whole system while the loads run, on one CPU or on all of
// them if cpu is negative.
func (b *bench) play(unspool string, loads []string, cpu, stackSize int) (p played, err error) {
	ready := make(map[string]*workloads.Workload)
	for _, name := range loads {
		if ready[name] == nil {
			if ready[name], err = b.prepared(name); err != nil {
				return p, err
			}
		}
	}
	for _, name := range loads {
		stop, err := ready[name].Loop(cpu)
		if err != nil {
			return p, err
		}
		defer stop()
	}
	time.Sleep(500 * time.Millisecond)

	data, stats := filepath.Join(b.dir, "live.data"), filepath.Join(b.dir, "live.json")
	c := exec.Command(unspool, "record", "-a", "-q", "-F", "999", "--stack-size", strconv.Itoa(stackSize),
		"-o", data, "--stats", stats, "-d", strconv.FormatFloat((settle+b.liveTime).Seconds(), 'f', -1, 64))
	stderr := new(tail)
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		return p, err
	}
	time.Sleep(settle)
	from, before := monotonic(), cpuTimeWithChildren(c.Process.Pid)
	time.Sleep(b.liveTime - 500*time.Millisecond)
	after, to := cpuTimeWithChildren(c.Process.Pid), monotonic()
	p.memory = largestResident(c.Process.Pid) - residentRings(c.Process.Pid)
	if err := c.Wait(); err != nil {
		return p, fmt.Errorf("unspool record: %w\n%s", err, stderr.text)
	}
	if p.samples, err = countSamples(data, from, to); err != nil {
		return p, err
	}
	if p.samples == 0 {
		return p, errors.New("no samples")
	}
	p.perSample = float64(after-before) / 1e3 / float64(p.samples)
	var st struct {
		Samples struct{ Lost int }
		Cost    struct {
			PerSample float64 `json:"us_per_sample"`
		}
	}
	text, err := os.ReadFile(stats)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return p, err
	}
	p.lost, p.all = st.Samples.Lost, st.Cost.PerSample
	return p, nil
}

// monotonic is the clock of unspool's recordings.
func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// cpuTime is the time that the threads of a process have run, in nanoseconds
// (Documentation/scheduler/sched-stats.rst). Samples do not show this time, as the sampler
// sleeps when the clock ticks.
func cpuTime(pid int) (sum uint64) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range tasks {
		ran, _, _ := strings.Cut(readText(path), " ")
		n, _ := strconv.ParseUint(ran, 10, 64)
		sum += n
	}
	return sum
}

// cpuTimeWithChildren is that of a recording and of its opener, in nanoseconds.
func cpuTimeWithChildren(pid int) (sum uint64) {
	sum = cpuTime(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		for _, child := range strings.Fields(readText(path)) {
			if n, err := strconv.Atoi(child); err == nil {
				sum += cpuTime(n)
			}
		}
	}
	return sum
}

// countSamples counts the samples of a recording that were taken between two times.
func countSamples(path string, from, to uint64) (n int, err error) {
	r, err := perfdata.Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	err = r.Ordered(func(rec perfring.Record, _ *perfring.SampleFormat, time uint64) error {
		if rec.Type() == perfring.RecordSample && from <= time && time < to {
			n++
		}
		return nil
	})
	return n, err
}
