package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unspool/bench/section"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/vmas"
)

const walksIntro = `A C program with frame pointers, 64 frames deep; the calls that lead there differ from sample to
sample. A walk along frame pointers ends two frames early, as Debian's C library has none. The first five rows walk
in memory, with all rules known: the first four inside the program, the same stack 200 times in a row, by CPU time,
the least of 200 stacks; *unspool* what a recorder does with a sample, from the record in memory to the record with
a callchain, another stack each time, the least of five passes. The others read 'perf.data' with copies of 8 KiB:
the CPU time for a long recording less that for a short one, divided by the samples between, which includes reading
and writing or printing.

`

// walks measures what it takes to walk a stack of 64 frames.
func (b *bench) walks() (string, error) {
	t := section.NewTable("", "frames", "µs/stack", "× frame pointers")
	var text bytes.Buffer
	if _, err := execute(0, &text, b.path("walk"), "time"); err != nil {
		return "", err
	}
	first := 0.0
	all := make(map[string]float64)
	add := func(name string, frames string, µs float64) {
		if first == 0 {
			first = µs
		}
		all[name] = µs
		b.say("walks: %s: %.3f µs", name, µs)
		t.Add(name, frames, fmt.Sprintf("%.2f", µs), fmt.Sprintf("%.0f", µs/first))
	}
	names := map[string]string{
		"frame pointers": "frame pointers, a loop in C", "backtrace()": "glibc's `backtrace()`",
		"unw_step()":      "libunwind's `unw_step()`",
		"unw_backtrace()": "libunwind's `unw_backtrace()`, which remembers rules",
	}
	for line := range strings.Lines(text.String()) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		var ns float64
		if len(f) != 3 || names[f[0]] == "" {
			return "", fmt.Errorf("%q", line)
		}
		if _, err := fmt.Sscan(f[2], &ns); err != nil {
			return "", err
		}
		add(names[f[0]], f[1], ns/1e3)
	}
	tasks, err := b.tasks("C, 64 frames")
	if err != nil {
		return "", err
	}
	var two [2]*recording
	for i, seconds := range []float64{1, 10} {
		r, err := b.record(b.byPerf("", 999, "dwarf,8192"), &tasks[0], tasks[0].rounds(seconds))
		if err != nil {
			return "", err
		}
		r.path = b.path(fmt.Sprintf("walk%d.data", i))
		if err := os.Rename(b.path("recorded.data"), r.path); err != nil {
			return "", err
		}
		two[i] = r
	}
	between := two[1].samples - two[0].samples
	if between <= 0 {
		return "", errors.New("the longer recording has no more samples")
	}
	frames, took, err := walkAll(two[1].path)
	if err != nil {
		return "", err
	}
	add("unspool", fmt.Sprintf("%.0f", frames), float64(took.Nanoseconds())/1e3)
	for _, c := range b.readers() {
		var cpu [2]time.Duration
		for i, r := range two {
			for n := range 3 {
				c, err := execute(0, io.Discard, append(slices.Clone(c.args), r.path)...)
				if err != nil {
					return "", err
				}
				if n == 0 || c.cpu < cpu[i] {
					cpu[i] = c.cpu
				}
			}
		}
		add(c.name, "64", float64((cpu[1]-cpu[0]).Nanoseconds())/1e3/float64(between))
	}
	times := func(µs float64) string { return fmt.Sprintf("%.1f µs: %.0f ×", µs, µs/first) }
	second := func(µs float64) string { return fmt.Sprintf("%.0f ms", µs*10) }
	var walk, load []string
	for _, p := range b.perfs {
		µs := all[scriptOf(p)]
		walk, load = append(walk, times(µs)), append(load, second(µs))
	}
	b.claim(fmt.Sprintf("walking 64 frames, × frame pointers (%.0f ns here)", first*1e3),
		"116 ns; DWARF \"on average\" 210 ×", walk, times(all["unspool"]))
	b.claim(fmt.Sprintf("the same 10,000 times a second (frame pointers %.1f ms here)", first*10),
		"1.2 ms; \"slowest\" DWARF 240 ms", load, second(all["unspool"]))
	return walksIntro + t.String(), nil
}

// scriptOf is what the reading by a perf is called.
func scriptOf(p perf) string { return "`perf script -F ip --no-inline`, " + p.version }

// readers are the commands that unwind a recording.
func (b *bench) readers() (list []way) {
	list = append(list, way{"`unspool convert -j 1`", []string{b.unspool, "convert", "-q", "-j", "1", "-o",
		b.path("converted.data")}})
	for _, p := range b.perfs {
		list = append(list, way{scriptOf(p), []string{p.path, "script", "-F", "ip", "--no-inline", "-i"}})
	}
	return list
}

// discard is a sink that keeps nothing but the number of frames.
type discard struct{ frames, samples uint64 }

func (*discard) Write([]byte) error { return nil }

func (d *discard) WriteSample(w *perfdata.Walked) error {
	if w.Result != nil {
		d.frames += uint64(len(w.Result.IPs))
		d.samples++
	}
	return nil
}

// walkAll unwinds the samples of a recording as a recorder does, several times, and returns the frames of a stack and
// the least CPU time for one.
func walkAll(path string) (frames float64, least time.Duration, err error) {
	rd, err := perfdata.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer rd.Close()
	ids := rd.FileBuildIDs()
	offline := &image.Offline{
		SameKernel: true, BuildID: func(path string) vmas.BuildID { return vmas.NewBuildID(ids[path]) },
	}
	sink := new(discard)
	var s *session.Session
	var samples []perfring.Record
	err = rd.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if s == nil {
			s = session.New(session.Config{Format: f, Sink: sink, Offline: offline, MaxStack: 2048})
		}
		if rec.Type() == perfring.RecordExit {
			return nil // the process stays for the passes
		}
		if rec.Type() == perfring.RecordSample {
			samples = append(samples, slices.Clone(rec))
		}
		return s.Record(rec)
	})
	if err != nil {
		return 0, 0, err
	}
	if sink.samples == 0 {
		return 0, 0, errors.New("no samples with a user stack")
	}
	frames = float64(sink.frames) / float64(sink.samples)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	for n := range 5 {
		begun, err := threadTime()
		if err != nil {
			return 0, 0, err
		}
		for _, rec := range samples {
			if err := s.Record(rec); err != nil {
				return 0, 0, err
			}
		}
		end, err := threadTime()
		if err != nil {
			return 0, 0, err
		}
		if took := (end - begun) / time.Duration(len(samples)); n == 0 || took < least {
			least = took
		}
	}
	return frames, least, nil
}

// threadTime is the CPU time of this thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
