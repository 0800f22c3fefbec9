package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// perf as a front end: what it records in its several ways is converted, and perf finds in the result the
// samples and the stacks that it finds itself in the raw copies. There is no test with AUX data, for which a
// machine needs Intel PT or the like: the tests of package recorded make such records.

// frontName is what the program is called that these tests record, and no others, which run at the same time.
const frontName = "burn-for-perf"

// largeRings keep perf from losing what is mapped while the machine is busy.
var largeRings = []string{"-m", "16M"}

func frontProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), frontName)
	copyFile(t, programs.Build(t, "burn"), path)
	return path
}

// convertedFromPipe has perf record a command into a pipe from which unspool reads, as the manual says, and
// returns what came through the pipe, and what was made of it.
func convertedFromPipe(t *testing.T, options []string, command ...string) (raw, out string) {
	t.Helper()
	dir := t.TempDir()
	raw, out = filepath.Join(dir, "raw.data"), filepath.Join(dir, "perf.data")
	record := slices.Concat([]string{"perf", "record", "-q", "--call-graph", "dwarf,16384"}, options,
		[]string{"-o", "-", "--"}, command)
	args := append([]string{"-c", `set -o pipefail
		"${@:3}" | tee "$1/raw.data" | "$2" convert -q - -o "$1/perf.data"`, "bash", dir, binary}, record...)
	for range 5 {
		cmd := exec.Command("bash", args...)
		text, err := cmd.CombinedOutput()
		if err == nil {
			return raw, out
		}
		if !strings.Contains(string(text), "assertion failed") { // see perfRecord
			t.Fatalf("%s: %v\n%s", cmd, err, text)
		}
	}
	t.Skip("perf aborts: somebody records the whole system all the time")
	return "", ""
}

// faultsTaken is how many pages the program touches while it is recorded.
const faultsTaken = 40

// noneDiffers expects every sample of the program to be the same, and as many for each of so many events as the
// program touches pages.
func noneDiffers(t *testing.T, differ, burns, events int) {
	t.Helper()
	if differ > 0 || burns != events*faultsTaken {
		t.Errorf("%d of %d samples of burn have other stacks; it faultsTaken %d pages", differ, burns, faultsTaken)
	}
}

// differForPerf compares what perf reads in raw copies with what it reads in what was made of them: all samples'
// events, and of the program that tests record how many entries of the kernel each has, and the functions of the user
// stack: perf knows no way from goroutines and generated code. They are compared as far as perf knows them: 6.1 loses
// libc's frames in all processes but the first. It returns how many of that program's samples differ.
func differForPerf(t *testing.T, before, after []sample, events ...string) (differ, burns int) {
	t.Helper()
	type key struct {
		tid   int
		at    time.Duration
		event string
	}
	all := make(map[key]*sample)
	of := make(map[string]int)
	for i := range before {
		s := &before[i]
		all[key{s.tid, s.time, s.event}] = s
		of[s.event]++
	}
	for _, s := range after {
		was := all[key{s.tid, s.time, s.event}]
		if was == nil || (was.comm == frontName) != (s.comm == frontName) {
			t.Fatalf("there is no sample %v of event %q of %s in the recording", s.time, s.event, s.comm)
		}
		if s.comm != frontName {
			continue
		}
		want, got := was.names(), s.names()
		if len(got) == 0 || got[0] != "burn_inner" {
			continue // perf loses frames of the dynamic linker while the program starts
		}
		burns++
		// _start of the dynamic linker ends with a call. Where perf has unwound the stack itself, it looks callers
		// up by the return address less one.
		for _, names := range [][]string{want, got} {
			if last := len(names) - 1; last >= 0 && names[last] == "_dl_start_user" {
				names[last] = "_start"
			}
		}
		if len(was.kernel) != len(s.kernel) || !slices.Equal(want, got[:min(len(want), len(got))]) {
			if differ++; differ <= 3 {
				t.Logf("%q, of the kernel %v\nbecame %q, %v", want, was.kernel, got, s.kernel)
			}
		}
	}
	t.Logf("%d samples, %v, %d of %d of burn differ", len(after), of, differ, burns)
	if len(after) != len(before) {
		t.Errorf("perf finds %d samples, and %d after", len(before), len(after))
	}
	for _, e := range events {
		if of[e] == 0 {
			t.Errorf("no samples of %s", e)
		}
	}
	return differ, burns
}

func TestPerfAsFrontEnd(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "tee", "bash")
	for _, c := range []struct {
		name    string
		options string
		events  []string
		counted int // of these, are of the pages that the program touches
	}{
		{"one event", "-e page-faults:u", []string{"page-faults:u"}, 1},
		{"two events, compressed", "-e page-faults:u,minor-faults:u -z", []string{"page-faults:u", "minor-faults:u"}, 2},
		{"the same event twice", "-e page-faults/name=one/,page-faults/name=two/u", []string{"one", "two"}, 2},
		{"a tracepoint", "-e page-faults:u,sched:sched_process_exit",
			[]string{"page-faults:u", "sched:sched_process_exit"}, 1},
	} {
		options := append(strings.Fields(c.options), append(largeRings, "-c", "1")...)
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "tracepoint") {
				needTracepoints(t)
			}
			t.Run("pipe", func(t *testing.T) {
				raw, out := convertedFromPipe(t, options, frontProgram(t), programs.Times(faultsTaken))
				differ, burns := differForPerf(t, perfScript(t, raw), perfScript(t, out), c.events...)
				noneDiffers(t, differ, burns, c.counted)
			})
			t.Run("file", func(t *testing.T) {
				raw := perfRecord(t, options, frontProgram(t), programs.Times(faultsTaken))
				differ, burns := differForPerf(t, perfScript(t, raw), perfScript(t, convert(t, raw).path), c.events...)
				noneDiffers(t, differ, burns, c.counted)
			})
			if c.counted == 1 {
				return // a directory has a file for each CPU: two events are in the same ones
			}
			t.Run("directory", func(t *testing.T) {
				raw := perfRecord(t, append(options, "--threads"), frontProgram(t), programs.Times(faultsTaken))
				if st, err := os.Stat(raw); err != nil || !st.IsDir() {
					t.Fatalf("perf has made no directory: %v", err)
				}
				differ, burns := differForPerf(t, perfScript(t, raw), perfScript(t, convert(t, raw).path), c.events...)
				noneDiffers(t, differ, burns, c.counted)
				folded := func(path string) string {
					return output(t, "", binary, "convert", "-q", path, "--no-inline", "--format", "folded", "-o", "-")
				}
				if folded(raw) != folded(convert(t, raw, "-j", "3").path) {
					t.Error("the stacks of the directory and of the file that was made of it differ")
				}
			})
		})
	}
}

// TestMachinePerfAsFrontEnd is the same for the whole machine, which does what it does meanwhile.
func TestMachinePerfAsFrontEnd(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "perf", "tee", "bash")
	options := append([]string{"-e", "cpu-clock", "-a", "--call-graph", "dwarf,8192", "-F", "1999"}, largeRings...)
	raw := perfRecord(t, options, frontProgram(t), "900")
	differ, burns := differForPerf(t, perfScript(t, raw), perfScript(t, convert(t, raw).path), "cpu-clock")
	lane.Figure(t, "%d of %d samples differ", differ, burns)
	if burns == 0 || differ*100 > burns {
		t.Errorf("%d of %d samples of burn have other stacks", differ, burns)
	}
}

// TestPerfsPieces converts the files that perf record --switch-output writes. They are switched at a size,
// as perf never switches at a time where its own start takes longer than the first file was to.
func TestPerfsPieces(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	path := filepath.Join(dir, "perf.data")
	output(t, dir, "perf", "record", "-q", "-e", "page-faults:u", "-c", "1", "--call-graph", "dwarf,16384", "-m", "16M",
		"--switch-output=1M", "-o", path, "--", "sh", "-c", `for i in 1 2 3 4 5 6 7 8; do "$0" =40; done`, frontProgram(t))
	pieces, _ := filepath.Glob(path + ".*")
	differ, burns := 0, 0 // in all: the last one may be empty, or only the program's end
	for _, piece := range pieces {
		if before := perfScript(t, piece); len(before) > 0 {
			d, b := differForPerf(t, before, perfScript(t, convert(t, piece).path))
			differ, burns = differ+d, burns+b
		}
	}
	if len(pieces) < 2 { // when perf looks at the size is its own matter
		t.Fatalf("pieces %q", pieces)
	}
	if differ > 0 || burns == 0 { // perf may lose some between two pieces
		t.Errorf("%d of %d samples of burn have other stacks", differ, burns)
	}
}

// TestEventThatAPipeTellsOfLate moves the description of an event behind the first records.
func TestEventThatAPipeTellsOfLate(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	raw := perfRecord(t, slices.Concat([]string{"-e", "page-faults,page-faults:u", "-c", "1", "-o", "-"}, largeRings),
		frontProgram(t), programs.Times(faultsTaken))
	content := mustRead(t, raw)
	const pipeHeader = 16
	var moved, held []byte
	attrs := 0
	for rest := perfring.Record(content[pipeHeader:]); len(rest) > 0; rest = rest[rest.Size():] {
		rec := rest[:rest.Size()]
		switch kind := rec.Type(); kind {
		case perfring.RecordHeaderAttr, perfring.RecordIDIndex: // the index needs all events
			if attrs++; attrs > 1 {
				held = append(held, rec...)
				continue
			}
			moved = append(moved, rec...)
		case perfring.RecordMmap, perfring.RecordMmap2:
			moved = append(append(moved, rec...), held...)
			held = nil
		default:
			moved = append(moved, rec...)
		}
	}
	late := filepath.Join(t.TempDir(), "late.data")
	if attrs != 3 || len(moved) != len(content)-pipeHeader {
		t.Fatalf("%d records to move; %d bytes became %d", attrs, len(content)-pipeHeader, len(moved))
	}
	if err := os.WriteFile(late, append(content[:pipeHeader:pipeHeader], moved...), 0o600); err != nil {
		t.Fatal(err)
	}
	events := []string{"page-faults", "page-faults:u"}
	before := perfScript(t, raw)
	same := func(t *testing.T, path string) {
		t.Helper()
		differ, burns := differForPerf(t, before, perfScript(t, path), events...)
		noneDiffers(t, differ, burns, len(events))
	}
	same(t, late)
	for _, args := range [][]string{nil, {"-j", "3"}, {"-z"}} {
		t.Run(fmt.Sprint("file", args), func(t *testing.T) { same(t, convert(t, late, args...).path) })
		t.Run(fmt.Sprint("pipe", args), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "pipe.data")
			cmd := exec.Command(binary, append([]string{"convert", "-q", late, "-o", "-"}, args...)...)
			cmd.Stderr = os.Stderr
			b, err := cmd.Output()
			if werr := os.WriteFile(out, b, 0o600); err != nil || werr != nil {
				t.Fatal(err, werr)
			}
			same(t, out)
		})
	}
	t.Run("folded", func(t *testing.T) {
		of := func(path string) string {
			return output(t, "", binary, "convert", "-q", path, "--no-inline", "--format", "folded", "-o", "-")
		}
		if got, want := of(late), of(raw); got != want {
			t.Errorf("%d bytes, not %d", len(got), len(want))
		}
	})
}

// TestPerfTellsOfBPF keeps what perf records of programs of the kernel's virtual machine.
func TestPerfTellsOfBPF(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	programs.NeedBPF(t)
	began, over := programs.FIFO(t), programs.FIFO(t)
	loaded := make(chan error)
	go func() { // while perf records a command, which begins and waits
		_, err := began.Read(make([]byte, 1))
		for range 3 {
			err = errors.Join(err, programs.LoadBPF())
		}
		_, failed := over.WriteString("\n")
		loaded <- errors.Join(err, failed)
	}()
	raw := perfRecord(t, []string{"-e", "dummy", "-a"}, "sh", "-c", `echo >"$0"; read line <"$1"`, began.Name(),
		over.Name())
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	out := convert(t, raw).path
	told := func(path string) (records []string) {
		r, err := perfdata.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
			if rec.Type() == perfring.RecordKsymbol || rec.Type() == perfring.RecordBPFEvent {
				if path == raw { // other tests record at the same time
					rec = f.Correct(rec, new([]byte))
				}
				records = append(records, fmt.Sprintf("%x", []byte(rec)))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		return records
	}
	byPerf := func(path string) int {
		text := output(t, "", "perf", "script", "--show-bpf-events", "-F", "comm,time", "--kallsyms", os.DevNull,
			"-i", path)
		return strings.Count(text, "PERF_RECORD_BPF_EVENT") + strings.Count(text, "PERF_RECORD_KSYMBOL")
	}
	before, after := told(raw), told(out)
	t.Logf("%d records about BPF programs", len(before))
	if len(before) < 6 || !slices.Equal(before, after) {
		t.Errorf("%d records about BPF programs, %d after", len(before), len(after))
	}
	if n := byPerf(out); n != len(before) {
		t.Errorf("perf script shows %d records about BPF programs, not %d", n, len(before))
	}
}
