package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// userRegs is the register mask of the hand-made samples: BP, SP and IP.
const userRegs = 1<<6 | 1<<7 | 1<<8

func testFormat() perfring.Format {
	return perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  userRegs,
		Sample_stack_user: 64,
		Bits:              unix.PerfBitSampleIDAll,
	})
}

// testSample is what a hand-made PERF_RECORD_SAMPLE says.
type testSample struct {
	pid, misc  uint32
	chain      []uint64
	abi        uint64
	bp, sp, ip uint64
	stack      []byte // 64 bytes, or none
	dynSize    uint64
}

func (s testSample) record() perfring.Record {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, 1) // identifier
	b = le.AppendUint64(b, s.ip)
	b = le.AppendUint32(le.AppendUint32(b, s.pid), s.pid)
	b = le.AppendUint64(b, 1000) // time
	b = le.AppendUint64(b, uint64(len(s.chain)))
	for _, ip := range s.chain {
		b = le.AppendUint64(b, ip)
	}
	b = le.AppendUint64(b, s.abi)
	if s.abi != unix.PERF_SAMPLE_REGS_ABI_NONE {
		for _, r := range []uint64{s.bp, s.sp, s.ip} {
			b = le.AppendUint64(b, r)
		}
	}
	b = le.AppendUint64(b, uint64(len(s.stack)))
	if len(s.stack) > 0 {
		b = le.AppendUint64(append(b, s.stack...), s.dynSize)
	}
	h := le.AppendUint32(nil, uint32(perfring.RecordSample))
	h = le.AppendUint16(le.AppendUint16(h, uint16(s.misc)), uint16(8+len(b)))
	return append(h, b...)
}

// kept collects what a session hands on.
type kept struct {
	records []perfring.Record
	err     error
}

func (k *kept) Write(rec []byte) error {
	k.records = append(k.records, slices.Clone(rec))
	return k.err
}

func (k *kept) WriteSample(w *perfdata.Walked) error { return w.Records(k.Write) }

func newTestSession(sink Sink) *Session {
	format := testFormat()
	return NewSession(Config{Format: &format, Sink: sink, MaxStack: 2048})
}

// TestPartsOfLargeProcessesAreBounded samples ever more threads of a process that is told of in parts.
func TestPartsOfLargeProcessesAreBounded(t *testing.T) {
	s := newTestSession(drop{})
	for i := range uint64(2000) {
		s.table.Mmap(7, vmas.Map{Addr: 0x1000_0000 + i<<16, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("/a")})
	}
	s.met = s.table.Space(7)
	for i := range uint64(3 * maxParts) {
		s.tellPart(&perfring.Sample{PID: 7, TID: uint32(8 + i), IP: 0x1000_0000 + i%2000<<16}, nil)
	}
	if !s.met.IsLarge() || len(s.partly) != 1 {
		t.Fatalf("%d processes were told of in parts", len(s.partly))
	}
	p := s.partly[s.met.ID()]
	if n := len(p.tids) + len(p.mappings); n != s.parts || n > maxParts+2 || len(p.mappings) != 2000 {
		t.Errorf("%d threads and %d mappings are kept, %d are counted", len(p.tids), len(p.mappings), s.parts)
	}
}

// TestCopiesAreToldAheadOfTheirSample: the record of a copy that a walk finds is written before the sample,
// and not by the walk itself.
func TestCopiesAreToldAheadOfTheirSample(t *testing.T) {
	var k kept
	s := newTestSession(&k)
	m := vmas.Mapping{Start: 0x1000, End: 0x2000, Prot: vmas.ProtExec, File: &vmas.File{Path: "/bin/copied"}}
	s.copied.note(7, &m)
	m.Start = 0 // it was valid as long as the walk
	if len(k.records) != 0 {
		t.Fatalf("%d records before the sample", len(k.records))
	}
	sample := testSample{
		pid: 7, misc: unix.PERF_RECORD_MISC_USER, abi: unix.PERF_SAMPLE_REGS_ABI_64, ip: 0x1234, sp: 0x7000,
		stack: make([]byte, 64), dynSize: 64,
	}
	for range 2 {
		if err := s.Record(sample.record()); err != nil {
			t.Fatal(err)
		}
	}
	var types []perfring.RecordType
	for _, r := range k.records {
		types = append(types, r.Type())
	}
	want := []perfring.RecordType{perfring.RecordMmap2, perfring.RecordSample, perfring.RecordSample}
	if !slices.Equal(types, want) {
		t.Fatalf("%v, want %v", types, want)
	}
	var told perfring.Mmap2
	if err := perfring.DecodeMmap2(k.records[0], &told); err != nil || told.PID != 7 || told.Addr != 0x1000 {
		t.Errorf("%+v, %v", told, err)
	}
}

func TestSamplesAreCountedByWhatTheyCarry(t *testing.T) {
	const kernel = ^uint64(127)
	stack := bytes.Repeat([]byte{0x5e}, 64)
	user := testSample{pid: 7, misc: unix.PERF_RECORD_MISC_USER, abi: unix.PERF_SAMPLE_REGS_ABI_64, ip: 0x1234,
		sp: 0x7000, stack: stack, dynSize: 64}
	with := func(f func(*testSample)) testSample { s := user; f(&s); return s }
	for _, c := range []struct {
		name             string
		sample           testSample
		total, user      uint64
		chain            []uint64
		dropped, unmaped bool
		excluded         exclusion // of what is dropped
	}{
		{"user stack", user, 1, 1, []uint64{^uint64(511), 0x1234}, false, true, 0},
		{"system call", with(func(s *testSample) { s.chain = []uint64{kernel, 9} }), 1, 1,
			[]uint64{kernel, 9, ^uint64(511), 0x1234}, false, true, 0},
		{"kernel thread", testSample{pid: 2, misc: unix.PERF_RECORD_MISC_KERNEL, chain: []uint64{kernel, 9}}, 1, 0,
			[]uint64{kernel, 9}, false, false, 0},
		{"registers without a stack, in a kernel that hides where execve is", with(func(s *testSample) {
			s.misc, s.chain, s.dynSize = unix.PERF_RECORD_MISC_KERNEL, []uint64{kernel, 9}, 0
		}), 1, 0, []uint64{kernel, 9}, false, false, 0},
		{"kernel's own user part", with(func(s *testSample) {
			s.chain = []uint64{kernel, 9, ^uint64(511), 0x1234, ^uint64(0), 0x5678}
		}), 1, 1, []uint64{kernel, 9, ^uint64(511), 0x1234}, false, true, 0},
		{"kernel's own user part without a stack",
			with(func(s *testSample) { s.chain = []uint64{kernel, 9, ^uint64(511), 0x1234}; s.dynSize = 0 }), 1, 1,
			[]uint64{kernel, 9, ^uint64(511), 0x1234}, false, true, 0},
		{"in another PID namespace", with(func(s *testSample) { s.pid = 0 }), 0, 0, nil, true, false, outside},
		{"there, in a system call", with(func(s *testSample) {
			s.pid, s.misc = 0, unix.PERF_RECORD_MISC_KERNEL
		}), 0, 0, nil, true, false, outside},
		{"idle", testSample{misc: unix.PERF_RECORD_MISC_KERNEL, chain: []uint64{kernel, 9}}, 0, 0, nil, true,
			false, idle},
		{"guest", with(func(s *testSample) { s.misc = unix.PERF_RECORD_MISC_GUEST_USER }), 0, 0, nil, true, false,
			guest},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k kept
			s := newTestSession(&k)
			if err := s.Record(c.sample.record()); err != nil {
				t.Fatal(err)
			}
			if s.Stats.Samples != c.total || s.Stats.User != c.user {
				t.Errorf("%d samples, %d with a user stack; want %d, %d", s.Stats.Samples, s.Stats.User, c.total, c.user)
			}
			if c.unmaped != (s.Stats.Ended[unwind.Unmapped] == 1) {
				t.Errorf("ended: %v", s.Stats.Ended)
			}
			if c.dropped {
				if len(k.records) != 0 {
					t.Errorf("handed on: %v", k.records)
				}
				if s.Stats.Excluded[c.excluded] != 1 {
					t.Errorf("left out: %v", s.Stats.Excluded)
				}
				return
			}
			if len(k.records) != 1 {
				t.Fatalf("%d records handed on", len(k.records))
			}
			out := testFormat()
			out = out.Unwound()
			var sm perfring.Sample
			if err := out.Sample(k.records[0], &sm); err != nil {
				t.Fatal(err)
			}
			var chain []uint64
			for i := range sm.Callchain.Len() {
				chain = append(chain, sm.Callchain.At(i))
			}
			if !slices.Equal(chain, c.chain) {
				t.Errorf("callchain %#x, want %#x", chain, c.chain)
			}
			if bytes.Contains(k.records[0], stack[:8]) {
				t.Error("stack bytes were handed on")
			}
		})
	}
}

// TestRegistersWithoutAStackBesideThem: where no stack was asked for there is nothing to unwind, and
// the kernel's own chain stays.
func TestRegistersWithoutAStackBesideThem(t *testing.T) {
	var k kept
	with := testFormat()
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type:      with.SampleType() &^ unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: userRegs, Bits: unix.PerfBitSampleIDAll,
	})
	s := NewSession(Config{Format: &format, Sink: &k, MaxStack: 2048})
	sample := testSample{pid: 7, misc: unix.PERF_RECORD_MISC_USER, abi: unix.PERF_SAMPLE_REGS_ABI_64, ip: 0x1234,
		chain: []uint64{perfring.ContextUser, 0x1234, 0x5678}}
	rec := sample.record()
	rec = rec[:len(rec)-8] // the size of the stack
	binary.LittleEndian.PutUint16(rec[6:], uint16(len(rec)))
	if err := s.Record(rec); err != nil {
		t.Fatal(err)
	}
	if s.Stats.Samples != 1 || s.Stats.User != 0 || len(k.records) != 1 {
		t.Fatalf("%+v, %d records", s.Stats, len(k.records))
	}
	out := format.Unwound()
	var sm perfring.Sample
	if err := out.Sample(k.records[0], &sm); err != nil || sm.Callchain.Len() != 3 {
		t.Errorf("callchain of %d, %v", sm.Callchain.Len(), err)
	}
}

func TestMalformedSampleIsNotHandedOn(t *testing.T) {
	var k kept
	s := newTestSession(&k)
	rec := testSample{pid: 7, abi: unix.PERF_SAMPLE_REGS_ABI_64, stack: make([]byte, 64),
		dynSize: 1 << 40}.record()
	if err := s.Record(rec); err != nil {
		t.Fatal(err)
	}
	if s.Stats.Malformed != 1 || s.Stats.Samples != 0 || len(k.records) != 0 {
		t.Errorf("malformed %d, samples %d, handed on %d", s.Stats.Malformed, s.Stats.Samples, len(k.records))
	}
}

func TestErrorsOfTheSinkEndTheSession(t *testing.T) {
	full := errors.New("disk full")
	s := newTestSession(&kept{err: full})
	if err := s.Record(testSample{pid: 7, misc: unix.PERF_RECORD_MISC_KERNEL}.record()); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

func TestSampleDoesNotAllocate(t *testing.T) {
	s := newTestSession(discard{})
	s.table.Comm(7, 7, []byte("seven"), true)
	s.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})
	rec := testSample{pid: 7, misc: unix.PERF_RECORD_MISC_USER, abi: unix.PERF_SAMPLE_REGS_ABI_64, ip: 0x1234,
		sp: 0x7000, stack: make([]byte, 64), dynSize: 64}.record()
	if n := testing.AllocsPerRun(100, func() { s.Record(rec) }); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
}

// TestWalksAreChargedToAProcess: what the walk over a live process's stack costs is charged to the process, and
// without limit for a recording.
func TestWalksAreChargedToAProcess(t *testing.T) {
	format := testFormat()
	sample := testSample{pid: 1 << 23, misc: unix.PERF_RECORD_MISC_USER, abi: unix.PERF_SAMPLE_REGS_ABI_64, ip: 0x1234,
		sp: 0x7000, stack: make([]byte, 64), dynSize: 64}
	for _, live := range []bool{true, false} {
		s := NewSession(Config{Format: &format, Sink: discard{}, MaxStack: 2048, Live: live})
		if began, ok := s.images.Begin(); !ok || !began.IsZero() {
			t.Errorf("live %v: before the first walk: %v, %v", live, began, ok)
		}
		if err := s.Record(sample.record()); err != nil {
			t.Fatal(err)
		}
		if began, ok := s.images.Begin(); !ok || began.IsZero() == live {
			t.Errorf("live %v: after a walk: %v, %v", live, began, ok)
		}
	}
}

type discard struct{}

func (discard) Write([]byte) error { return nil }

func (d discard) WriteSample(w *perfdata.Walked) error { return w.Records(d.Write) }

func TestSummarySaysWhatToDo(t *testing.T) {
	s := Stats{Samples: 2000, User: 1000, Frames: 9000, Duration: time.Second, Lost: 3, Written: 5000,
		StackCopied: 1 << 20}
	s.Ended[unwind.Root], s.Guessed = 990, 40
	s.Ended[unwind.DumpTooShort], s.Cut[tooDeep], s.Cut[gap], s.Cut[noCopy] = 12, 7, 3, 2
	s.Ended[unwind.NoCFI] = 3
	tr := newTrouble()
	for range 3 {
		tr.ended(unwind.NoCFI, "/usr/lib/libjit.so")
	}
	var b strings.Builder
	WriteSummary(&b, &s, tr, Limits{StackSize: 32768, MaxStack: 2048}, "perf.data")
	for _, want := range []string{
		"2,000 samples",
		"99.0 % of the user stacks are complete (990 of 1,000): 95.0 % by CFI alone, 4.0 % with guessed",
		"--stack-size 65528",
		"0.5 %  gap in the copy", "libjit.so (3)", "3 records were lost", "(-m)", "perf.data",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, &b)
		}
	}
}

// TestAdviceOnDeepStacks has what the summary says of stacks that are deeper than the copy: where the rest is not read
// when they are sampled, more may be copied, and where it is, real-time priority may help.
func TestAdviceOnDeepStacks(t *testing.T) {
	const read = "the rest could not be read when they were sampled"
	for _, c := range []struct {
		limits Limits
		want   string
	}{
		{Limits{StackSize: 16 << 10}, "copy more of the stack: --stack-size 32768\n"},
		{Limits{StackSize: 32 << 10}, "copy more of the stack: --stack-size 65528\n"},
		{Limits{StackSize: perfring.MaxStackSize}, "deeper than the kernel can copy\n"},
		{Limits{StackSize: 16 << 10, ReadsRest: true, RealTime: true}, read + "\n"},
		{Limits{StackSize: perfring.MaxStackSize, ReadsRest: true, RealTime: true}, read + "\n"},
		{Limits{StackSize: perfring.MaxStackSize, ReadsRest: true}, read + ": real-time priority reads more of " +
			"them (as root, with CAP_SYS_NICE, or `ulimit -r 1`)\n"},
	} {
		s := Stats{Samples: 10, User: 10}
		s.Ended[unwind.DumpTooShort], s.Cut[tooDeep] = 10, 10
		var b strings.Builder
		c.limits.MaxStack = 9
		WriteSummary(&b, &s, newTrouble(), c.limits, "")
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%+v: no %q in\n%s", c.limits, c.want, &b)
		}
	}
}

// TestSummaryOfNamesThatAreMadeToMislead has a path of 4 KB with marks that terminals obey, and a CPU
// that was offline.
func TestSummaryOfNamesThatAreMadeToMislead(t *testing.T) {
	path := "/tmp/\u009b31m\u202e\x1b]0;" + strings.Repeat("long/", 800) + "end"
	s := Stats{Samples: 10, User: 10, OfflineCPUs: []int{1, 3}}
	s.Ended[unwind.NoImage], s.Ended[unwind.NoCFI] = 5, 5
	tr := newTrouble()
	tr.ended(unwind.NoImage, path)
	tr.ended(unwind.NoCFI, "[\u202e"+strings.Repeat("x", 4000))
	tr.file(path, fmt.Errorf("%s: not found", path))
	var b strings.Builder
	WriteSummary(&b, &s, tr, Limits{StackSize: 32768, MaxStack: 2048}, path)
	WriteFiles(&b, tr)
	for line := range strings.Lines(b.String()) {
		if n := human.Columns(line); n > 400 {
			t.Errorf("a line of %d columns", n)
		}
		if text := strings.TrimSuffix(line, "\n"); human.Clean(text) != text {
			t.Errorf("%q is obeyed by terminals", line)
		}
	}
	for _, want := range []string{"end: not found", "CPU 1 3\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, &b)
		}
	}
}

func TestShareIsNeverRoundedToAll(t *testing.T) {
	for _, c := range []struct {
		n, total uint64
		want     string
	}{
		{1000, 1000, "100 %"}, {99999, 100000, "> 99.9 %"}, {1, 100000, "< 0.1 %"}, {0, 10, "0.0 %"},
		{1, 3, "33.3 %"},
	} {
		if got := human.Percent(c.n, c.total); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.n, c.total, got, c.want)
		}
	}
}

// TestLooksAtManyRings: what it takes to look at all rings while they are drained does not grow for each record.
func TestLooksAtManyRings(t *testing.T) {
	for cpus, most := range map[int]int{1: 64, 16: 64, 256: 256} {
		var rings []perfring.Memory
		for i := range 2 * cpus {
			rings = append(rings, perfring.Memory{CPU: i / 2, SideBand: i%2 == 0, Data: make([]byte, 64), Head: new(uint64),
				Tail: new(uint64)})
		}
		r := &recording{source: perfring.OfMemory(perfring.Attr{}, rings, nil), session: newTestSession(drop{})}
		looks, last := 0, 0
		for range 4 * most {
			if err := r.record(mapRecord(7, 0x1000, 0x1000, 1, "/a")); err != nil {
				t.Fatal(err)
			}
			if r.untilPeek > last {
				looks++
			}
			last = r.untilPeek
		}
		if looks != 4 {
			t.Errorf("%d CPUs: %d looks for %d records", cpus, looks, 4*most)
		}
	}
}
