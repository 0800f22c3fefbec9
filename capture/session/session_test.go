package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/counts"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

func newTestSession(sink Sink) *Session {
	format := sessiontest.Format()
	return New(Config{Format: &format, Sink: sink, MaxStack: 2048})
}

// TestPartsOfLargeProcessesAreBounded samples ever more threads of a process that is told of in parts.
func TestPartsOfLargeProcessesAreBounded(t *testing.T) {
	s := newTestSession(sessiontest.Discard{})
	for i := range uint64(2000) {
		s.table.Mmap(7, vmas.Map{Addr: 0x1000_0000 + i<<16, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("/a")})
	}
	w := &work{space: s.table.Space(7)}
	for i := range uint64(3 * maxParts) {
		w.sample = perfring.Sample{PID: 7, TID: uint32(8 + i), IP: 0x1000_0000 + i%2000<<16}
		s.teller.tellPart(w)
	}
	if !w.space.IsLarge() || len(s.teller.partly) != 1 {
		t.Fatalf("%d processes were told of in parts", len(s.teller.partly))
	}
	p := s.teller.partly[w.space.ID()]
	if n := len(p.tids) + len(p.mappings); n != s.teller.parts || n > maxParts+2 || len(p.mappings) != 2000 {
		t.Errorf("%d threads and %d mappings are kept, %d are counted", len(p.tids), len(p.mappings), s.teller.parts)
	}
}

// TestCopiesAreToldAheadOfTheirSample: the record of a copy that a walk finds is written before the sample,
// and not by the walk itself.
func TestCopiesAreToldAheadOfTheirSample(t *testing.T) {
	var k sessiontest.Collector
	s := newTestSession(&k)
	m := vmas.Mapping{Start: 0x1000, End: 0x2000, Prot: vmas.ProtExec, File: &vmas.File{Path: "/bin/copied"}}
	s.teller.copied.note(7, &m)
	m.Start = 0 // it was valid as long as the walk
	if len(k.Records) != 0 {
		t.Fatalf("%d records before the sample", len(k.Records))
	}
	sample := sessiontest.RawSample{
		PID: 7, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64,
		IP: 0x1234, SP: 0x7000,
		Stack: make([]byte, 64), DynSize: 64,
	}
	for range 2 {
		if err := s.Record(sample.Record()); err != nil {
			t.Fatal(err)
		}
	}
	var types []perfring.RecordType
	for _, r := range k.Records {
		types = append(types, r.Type())
	}
	want := []perfring.RecordType{perfring.RecordMmap2, perfring.RecordSample, perfring.RecordSample}
	if !slices.Equal(types, want) {
		t.Fatalf("%v, want %v", types, want)
	}
	var told perfring.Mmap2
	if err := perfring.DecodeMmap2(k.Records[0], &told); err != nil || told.PID != 7 || told.Addr != 0x1000 {
		t.Errorf("%+v, %v", told, err)
	}
}

func TestSamplesAreCountedByWhatTheyCarry(t *testing.T) {
	const kernel = ^uint64(127)
	stack := bytes.Repeat([]byte{0x5e}, 64)
	user := sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64, IP: 0x1234,
		SP: 0x7000, Stack: stack, DynSize: 64}
	with := func(f func(*sessiontest.RawSample)) sessiontest.RawSample { s := user; f(&s); return s }
	for _, c := range []struct {
		name             string
		sample           sessiontest.RawSample
		total, user      uint64
		chain            []uint64
		dropped, unmaped bool
		excluded         counts.Exclusion // of what is dropped
	}{
		{"user stack", user, 1, 1, []uint64{^uint64(511), 0x1234}, false, true, 0},
		{"system call", with(func(s *sessiontest.RawSample) { s.Chain = []uint64{kernel, 9} }), 1, 1,
			[]uint64{kernel, 9, ^uint64(511), 0x1234}, false, true, 0},
		{"kernel thread", sessiontest.RawSample{PID: 2, Misc: unix.PERF_RECORD_MISC_KERNEL, Chain: []uint64{kernel, 9}}, 1, 0,
			[]uint64{kernel, 9}, false, false, 0},
		{"registers without a stack, in a kernel that hides where execve is", with(func(s *sessiontest.RawSample) {
			s.Misc, s.Chain, s.DynSize = unix.PERF_RECORD_MISC_KERNEL, []uint64{kernel, 9}, 0
		}), 1, 0, []uint64{kernel, 9}, false, false, 0},
		{"kernel's own user part", with(func(s *sessiontest.RawSample) {
			s.Chain = []uint64{kernel, 9, ^uint64(511), 0x1234, ^uint64(0), 0x5678}
		}), 1, 1, []uint64{kernel, 9, ^uint64(511), 0x1234}, false, true, 0},
		{"kernel's own user part without a stack",
			with(func(s *sessiontest.RawSample) { s.Chain = []uint64{kernel, 9, ^uint64(511), 0x1234}; s.DynSize = 0 }), 1, 1,
			[]uint64{kernel, 9, ^uint64(511), 0x1234}, false, true, 0},
		{"in another PID namespace", with(func(s *sessiontest.RawSample) { s.PID = 0 }),
			0, 0, nil, true, false, counts.Outside},
		{"there, in a system call", with(func(s *sessiontest.RawSample) {
			s.PID, s.Misc = 0, unix.PERF_RECORD_MISC_KERNEL
		}), 0, 0, nil, true, false, counts.Outside},
		{"idle", sessiontest.RawSample{Misc: unix.PERF_RECORD_MISC_KERNEL, Chain: []uint64{kernel, 9}}, 0, 0, nil, true,
			false, counts.Idle},
		{"guest", with(func(s *sessiontest.RawSample) { s.Misc = unix.PERF_RECORD_MISC_GUEST_USER }), 0, 0, nil, true, false,
			counts.Guest},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k sessiontest.Collector
			s := newTestSession(&k)
			if err := s.Record(c.sample.Record()); err != nil {
				t.Fatal(err)
			}
			if s.Stats.Samples != c.total || s.Stats.User != c.user {
				t.Errorf("%d samples, %d with a user stack; want %d, %d", s.Stats.Samples, s.Stats.User, c.total, c.user)
			}
			if c.unmaped != (s.Stats.Ended[unwind.Unmapped] == 1) {
				t.Errorf("ended: %v", s.Stats.Ended)
			}
			if c.dropped {
				if len(k.Records) != 0 {
					t.Errorf("handed on: %v", k.Records)
				}
				if s.Stats.Excluded[c.excluded] != 1 {
					t.Errorf("left out: %v", s.Stats.Excluded)
				}
				return
			}
			if len(k.Records) != 1 {
				t.Fatalf("%d records handed on", len(k.Records))
			}
			out := sessiontest.Format()
			out = out.Unwound()
			var sm perfring.Sample
			if err := out.Sample(k.Records[0], &sm); err != nil {
				t.Fatal(err)
			}
			var chain []uint64
			for i := range sm.Callchain.Len() {
				chain = append(chain, sm.Callchain.At(i))
			}
			if !slices.Equal(chain, c.chain) {
				t.Errorf("callchain %#x, want %#x", chain, c.chain)
			}
			if bytes.Contains(k.Records[0], stack[:8]) {
				t.Error("stack bytes were handed on")
			}
		})
	}
}

// TestRegistersWithoutAStackBesideThem: where no stack was asked for there is nothing to unwind, and
// the kernel's own chain stays.
func TestRegistersWithoutAStackBesideThem(t *testing.T) {
	var k sessiontest.Collector
	with := sessiontest.Format()
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type:      with.SampleType() &^ unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: sessiontest.UserRegs, Bits: unix.PerfBitSampleIDAll,
	})
	s := New(Config{Format: &format, Sink: &k, MaxStack: 2048})
	sample := sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64,
		IP:    0x1234,
		Chain: []uint64{perfring.ContextUser, 0x1234, 0x5678}}
	rec := sample.Record()
	rec = rec[:len(rec)-8] // the size of the stack
	binary.LittleEndian.PutUint16(rec[6:], uint16(len(rec)))
	if err := s.Record(rec); err != nil {
		t.Fatal(err)
	}
	if s.Stats.Samples != 1 || s.Stats.User != 0 || len(k.Records) != 1 {
		t.Fatalf("%+v, %d records", s.Stats, len(k.Records))
	}
	out := format.Unwound()
	var sm perfring.Sample
	if err := out.Sample(k.Records[0], &sm); err != nil || sm.Callchain.Len() != 3 {
		t.Errorf("callchain of %d, %v", sm.Callchain.Len(), err)
	}
}

func TestMalformedSampleIsNotHandedOn(t *testing.T) {
	var k sessiontest.Collector
	s := newTestSession(&k)
	rec := sessiontest.RawSample{PID: 7, ABI: unix.PERF_SAMPLE_REGS_ABI_64, Stack: make([]byte, 64),
		DynSize: 1 << 40}.Record()
	if err := s.Record(rec); err != nil {
		t.Fatal(err)
	}
	if s.Stats.Malformed != 1 || s.Stats.Samples != 0 || len(k.Records) != 0 {
		t.Errorf("malformed %d, samples %d, handed on %d", s.Stats.Malformed, s.Stats.Samples, len(k.Records))
	}
}

func TestErrorsOfTheSinkEndTheSession(t *testing.T) {
	full := errors.New("disk full")
	s := newTestSession(&sessiontest.Collector{Err: full})
	if err := s.Record(sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_KERNEL}.Record()); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

func TestSampleDoesNotAllocate(t *testing.T) {
	s := newTestSession(sessiontest.Discard{})
	s.table.Comm(7, 7, []byte("seven"), true)
	s.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})
	rec := sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64, IP: 0x1234,
		SP: 0x7000, Stack: make([]byte, 64), DynSize: 64}.Record()
	if n := testing.AllocsPerRun(100, func() { s.Record(rec) }); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
}

// TestWalksAreChargedToAProcess: what the walk over a live process's stack costs is charged to the process, and
// without limit for a recording.
func TestWalksAreChargedToAProcess(t *testing.T) {
	format := sessiontest.Format()
	sample := sessiontest.UserSample(1<<23, 0x1234)
	for _, live := range []bool{true, false} {
		s := New(Config{Format: &format, Sink: sessiontest.Discard{}, MaxStack: 2048, Live: live})
		if began, ok := s.images.Begin(); !ok || !began.IsZero() {
			t.Errorf("live %v: before the first walk: %v, %v", live, began, ok)
		}
		if err := s.Record(sample.Record()); err != nil {
			t.Fatal(err)
		}
		if began, ok := s.images.Begin(); !ok || began.IsZero() == live {
			t.Errorf("live %v: after a walk: %v, %v", live, began, ok)
		}
	}
}
