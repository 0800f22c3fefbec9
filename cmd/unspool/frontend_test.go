package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/programs"
)

// perf as a front end: what it records in its several ways is converted, and perf finds in the result the
// samples and the stacks that it finds itself in the raw copies. There is no test with AUX data, for which a
// machine needs Intel PT or the like: the tests of package capture make such records.

// frontName is what the program is called that these tests record, and no others, which run at the same time.
const frontName = "plain-for-perf"

// largeRings hold all that perf records here, so that it loses nothing while the machine is busy.
var largeRings = []string{"-m", "16M"}

// frontCommand is a command that takes [counted] page faults at the end of its chain, plain_leaf.
func frontCommand(t *testing.T, flags ...string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), frontName)
	copyFile(t, programs.Build(t, "plain", flags...), path)
	return []string{path, programs.Times(counted)}
}

// convertedFromPipe has perf record a command into a pipe from which unspool reads, as README says, and
// returns what came through the pipe, and what was made of it.
func convertedFromPipe(t *testing.T, options []string, command ...string) (raw, out string) {
	t.Helper()
	dir := t.TempDir()
	raw, out = filepath.Join(dir, "raw.data"), filepath.Join(dir, "perf.data")
	record := slices.Concat([]string{"perf", "record", "-q", "--call-graph", "dwarf,8192"}, options,
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

// sameForPerf has perf read raw copies and what was made of them. It compares all samples' events, and of the program
// that tests record how many entries of the kernel each has, and the functions of the user stack: perf knows no way
// from goroutines and generated code. They are compared as far as perf knows them: 6.1 loses libc's frames in all
// processes but the first. Each event has to have samples with the leaf, if one is given. Their number is returned, of these events,
// or of all.
func sameForPerf(t *testing.T, raw, converted, comm, leaf string, events ...string) (leaves int) {
	t.Helper()
	differ, compared := 0, 0
	type key struct {
		tid   int
		at    time.Duration
		event string
	}
	all := make(map[key]*sample)
	of := make(map[string]int)
	before, after := perfScriptHeads(t, raw), perfScriptHeads(t, converted)
	for i := range before {
		s := &before[i]
		all[key{s.tid, s.time, s.event}] = s
		of[s.event]++
	}
	for _, s := range after {
		if all[key{s.tid, s.time, s.event}] == nil {
			t.Fatalf("there is no sample %v of event %q in the recording", s.time, s.event)
		}
	}
	clear(all)
	stacks := perfScript(t, raw, "--comm", comm)
	for i := range stacks {
		s := &stacks[i]
		all[key{s.tid, s.time, s.event}] = s
	}
	for _, s := range perfScript(t, converted, "--comm", comm) {
		was := all[key{s.tid, s.time, s.event}]
		if was == nil {
			t.Fatalf("the sample %v of event %q is none of %s in the recording", s.time, s.event, comm)
		}
		compared++
		want, got := was.names(), s.names()
		if len(got) > 0 && (leaf == "" || got[0] == leaf) {
			of[s.event+" at the leaf"]++
			if len(events) == 0 || slices.Contains(events, s.event) {
				leaves++
			}
		}
		// _start of the dynamic linker ends with a call. Where perf has unwound the stack itself, it looks callers
		// up by the return address less one.
		for _, names := range [][]string{want, got} {
			if last := len(names) - 1; last >= 0 && names[last] == "_dl_start_user" {
				names[last] = "_start"
			}
		}
		for i := range min(len(want), len(got)) { // exit ends with a call, too
			if want[i] == "exit" && got[i] == "[unknown]" {
				got[i] = want[i]
			}
		}
		if len(was.kernel) != len(s.kernel) || !slices.Equal(want, got[:min(len(want), len(got))]) {
			if differ++; differ <= 3 {
				t.Logf("%q, of the kernel %v\nbecame %q, %v", want, was.kernel, got, s.kernel)
			}
		}
	}
	t.Logf("%d samples, %v", len(after), of)
	if differ > 0 {
		t.Errorf("%d of %d samples of %s have other stacks", differ, compared, comm)
	}
	if len(after) != len(before) {
		t.Errorf("perf finds %d samples, and %d after", len(before), len(after))
	}
	for _, e := range events {
		if of[e+" at the leaf"] == 0 {
			t.Errorf("no samples of %s in %s", e, leaf)
		}
	}
	return leaves
}

func TestPerfAsFrontEnd(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "tee", "bash")
	for _, c := range []struct {
		name    string
		options string
		events  []string // that count the page faults
	}{
		{"one event", "-e page-faults:u -c 1", []string{"page-faults:u"}},
		{"two events, compressed", "-e page-faults:u,minor-faults:u -c 1 -z",
			[]string{"page-faults:u", "minor-faults:u"}},
		// Linux 6.18 gives samples of one page fault the ID of one event.
		{"the same event twice", "-e cpu-clock/name=one,period=1000000/,cpu-clock/name=two,period=1000000/u," +
			"page-faults/period=1/u", []string{"page-faults/period=1/u"}},
		{"a tracepoint", "-e exceptions:page_fault_user,page-faults:u -c 1",
			[]string{"exceptions:page_fault_user", "page-faults:u"}},
	} {
		options := append(strings.Fields(c.options), largeRings...)
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "tracepoint") {
				needTracepoints(t)
			}
			same := func(t *testing.T, raw, out string) {
				n := sameForPerf(t, raw, out, frontName, "plain_leaf", c.events...)
				if n != counted*len(c.events) {
					t.Errorf("%d samples in plain_leaf, not %d of each event", n, counted)
				}
			}
			t.Run("pipe", func(t *testing.T) {
				raw, out := convertedFromPipe(t, options, frontCommand(t)...)
				same(t, raw, out)
			})
			t.Run("file", func(t *testing.T) {
				raw := perfRecord(t, options, frontCommand(t)...)
				same(t, raw, convert(t, raw).path)
			})
		})
	}
}

// TestPerfOfTheMachineAsFrontEnd has perf record the whole machine, of which one program's stacks are known.
func TestPerfOfTheMachineAsFrontEnd(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "tee", "bash")
	// A signal's delivery is counted, of which there are few on the machine.
	needTracepoints(t)
	options := append(strings.Fields("-e signal:signal_generate -c 1 -a"), largeRings...)
	command := []string{"bash", "-c", "for i in {1..20}; do kill -CONT $$; done"}
	t.Run("pipe", func(t *testing.T) {
		raw, out := convertedFromPipe(t, options, command...)
		if n := sameForPerf(t, raw, out, "bash", "", "signal:signal_generate"); n < counted {
			t.Errorf("%d signals, not %d", n, counted)
		}
	})
	t.Run("file", func(t *testing.T) {
		raw := perfRecord(t, options, command...)
		if n := sameForPerf(t, raw, convert(t, raw).path, "bash", "", "signal:signal_generate"); n < counted {
			t.Errorf("%d signals, not %d", n, counted)
		}
	})
}

// TestPerfsPieces converts the files that perf record --switch-output writes. They are switched at a size,
// as perf never switches at a time where its own start takes longer than the first file was to.
func TestPerfsPieces(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	path := filepath.Join(dir, "perf.data")
	const runs = `until [ "$(ls | wc -l)" -ge 3 ]; do "$0" "$1"; done`
	output(t, dir, "perf", slices.Concat([]string{"record", "-q"}, programs.Faults(), []string{"-m", "4M",
		"--call-graph", "dwarf,2048", "--switch-output=1M", "-o", path, "--", "sh", "-c", runs},
		frontCommand(t, "-static"))...)
	pieces, _ := filepath.Glob(path + ".*")
	if len(pieces) < 3 {
		t.Fatalf("pieces %q", pieces)
	}
	n := 0 // in all: the last one may be empty, or only the program's end
	for _, piece := range pieces {
		if len(perfScriptHeads(t, piece)) > 0 {
			n += sameForPerf(t, piece, convert(t, piece).path, frontName, "plain_leaf")
		}
	}
	if n == 0 {
		t.Errorf("no samples in plain_leaf in %d pieces", len(pieces))
	}
}

// TestEventThatAPipeTellsOfLate moves the description of an event behind the first records.
func TestEventThatAPipeTellsOfLate(t *testing.T) {
	t.Parallel()
	need(t, "perf")
	raw := placed(t, "raw-pipe")
	content := mustRead(t, raw)
	const pipeHeader = 16
	var moved, held []byte
	attrs := 0
	for rest := perfring.Record(content[pipeHeader:]); len(rest) > 0; rest = rest[rest.Size():] {
		rec := rest[:rest.Size()]

		switch kind := rec.Type(); kind {
		case perfring.RecordHeaderAttr, perfring.RecordIDIndex, perfring.RecordEventUpdate: // the index needs all events
			if kind != perfring.RecordEventUpdate {
				attrs++
			}
			if attrs > 1 {
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
	late := filepath.Join(filepath.Dir(raw), "late.data")
	if attrs != 3 || len(moved) != len(content)-pipeHeader {
		t.Fatalf("%d records to move; %d bytes became %d", attrs, len(content)-pipeHeader, len(moved))
	}
	if err := os.WriteFile(late, append(content[:pipeHeader:pipeHeader], moved...), 0o600); err != nil {
		t.Fatal(err)
	}
	same := func(t *testing.T, path string) {
		t.Helper()
		if n := sameForPerf(t, raw, path, "shapes", "shapes::Circle::area", "page-faults:u", "minor-faults:u"); n != 40 {
			t.Errorf("%d samples in shapes::Circle::area, not 20 of each event", n)
		}
	}
	same(t, late)
	for _, args := range [][]string{nil, {"-j", "3"}, {"-z"}} {
		t.Run(fmt.Sprint("file", args), func(t *testing.T) {
			same(t, convert(t, late, args...).path)
		})
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
			return output(t, "", binary, "convert", "-q", path, "--format", "folded", "-o", "-")
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
	needTracepoints(t)
	programs.NeedBPF(t)
	// The command tells that perf records, and waits until programs have been loaded.
	dir := t.TempDir()
	begun, loaded := filepath.Join(dir, "begun"), filepath.Join(dir, "loaded")
	const loads = 5
	for _, path := range []string{begun, loaded} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		if _, err := os.ReadFile(begun); err != nil { // until it is closed
			t.Error(err)
		}
		for range loads {
			if err := programs.LoadBPF(); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(loaded, nil, 0); err != nil {
			t.Error(err)
		}
	}()
	raw := perfRecord(t, []string{"-e", "sched:sched_process_exec", "-c", "1", "-a"}, "sh", "-c",
		`: >"$0"; : <"$1"; exec true`, begun, loaded)
	out := convert(t, raw).path
	told := func(path string) (records []string) {
		r, err := perfdata.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Ordered(func(rec perfring.Record, f *perfring.Format, _ uint64) error {
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
	if len(before) < 2*loads || !slices.Equal(before, after) { // each is told of when it is loaded and by name
		t.Errorf("%d records about BPF programs, %d after", len(before), len(after))
	}
	if n := byPerf(out); n != len(before) {
		t.Errorf("perf script shows %d records about BPF programs, not %d", n, len(before))
	}
}
