package perfring

import (
	"bytes"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// mmap2 makes an MMAP2 record without a trailer, its misc bits as given.
func mmap2(t *testing.T, misc uint16, buildID []byte) Record {
	t.Helper()
	b, err := AppendMmap2(nil, new(SampleFormat),
		&Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000,
			Maj: 8, Min: 1, Inode: 4711, Generation: 3, BuildID: buildID, Prot: unix.PROT_EXEC,
			Path: []byte("/bin/true")}, &SampleID{})
	if err != nil {
		t.Fatal(err)
	}
	b[4], b[5] = byte(misc), byte(misc>>8)
	return b
}

// The kernel hands one profiler's PERF_RECORD_MISC_MMAP_BUILD_ID to the events of all others.
func TestBuildIDIsBelievedOnlyWhereTheEventAsksForIt(t *testing.T) {
	const claims = unix.PERF_RECORD_MISC_USER | unix.PERF_RECORD_MISC_MMAP_BUILD_ID
	asks := NewFormat(&unix.PerfEventAttr{Bits: bitBuildID})
	var asksNot SampleFormat
	own := asksNot.AllowBuildIDs()
	for _, c := range []struct {
		name   string
		format *SampleFormat
		record Record
		id     string
		inode  uint64
	}{
		{"asked for and given", &asks, mmap2(t, claims, []byte("twenty bytes of hash")), "twenty bytes of hash", 0},
		{"asked for and not given", &asks, mmap2(t, unix.PERF_RECORD_MISC_USER, nil), "", 4711},
		{"not asked for", &asksNot, mmap2(t, unix.PERF_RECORD_MISC_USER, nil), "", 4711},
		{"not asked for, claimed", &asksNot, mmap2(t, claims, nil), "", 4711},
		{"no event's, given", &own, mmap2(t, claims, []byte("twenty bytes of hash")), "twenty bytes of hash", 0},
	} {
		before := bytes.Clone(c.record)
		r := c.format.Correct(c.record, new([]byte))
		var m Mmap2
		if err := DecodeMmap2(r, &m); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if string(m.BuildID) != c.id || m.Inode != c.inode || string(m.Path) != "/bin/true" {
			t.Errorf("%s: build ID %q, inode %d, path %s", c.name, m.BuildID, m.Inode, m.Path)
		}
		if !bytes.Equal(before, c.record) {
			t.Errorf("%s: the kernel's memory was written to", c.name)
		}
		if r.Misc()&unix.PERF_RECORD_MISC_MMAP_BUILD_ID != 0 != (c.id != "") || !bytes.Equal(r[6:], before[6:]) {
			t.Errorf("%s: handed on as % x", c.name, []byte(r))
		}
	}
}

// A build ID takes the place of device and inode, and nothing else changes.
func TestAppendIdentified(t *testing.T) {
	plain := mmap2(t, unix.PERF_RECORD_MISC_USER, nil)
	known := mmap2(t, unix.PERF_RECORD_MISC_USER|unix.PERF_RECORD_MISC_MMAP_BUILD_ID, []byte("known"))
	for _, c := range []struct {
		name   string
		record Record
		id     string
		want   string
	}{
		{"given", plain, "twenty bytes of hash", "twenty bytes of hash"},
		{"short", plain, "eight by", "eight by"},
		{"too long", plain, "twenty-one bytes long", ""},
		{"none", plain, "", ""},
		{"there already", known, "other", "known"},
	} {
		before := bytes.Clone(c.record)
		b := AppendIdentified([]byte("front"), c.record, []byte(c.id))
		var m, old Mmap2
		r := Record(b[len("front"):])
		if err := DecodeMmap2(r, &m); err != nil || string(b[:5]) != "front" || !bytes.Equal(before, c.record) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := DecodeMmap2(c.record, &old); err != nil {
			t.Fatal(err)
		}
		if string(m.BuildID) != c.want || c.want != "" && m.Inode != 0 || c.want == "" && m.Inode != old.Inode {
			t.Errorf("%s: build ID %q, inode %d", c.name, m.BuildID, m.Inode)
		}
		m.Misc, m.BuildID, m.Maj, m.Min, m.Inode, m.Generation = old.Misc, old.BuildID, old.Maj, old.Min, old.Inode,
			old.Generation
		if !reflect.DeepEqual(m, old) || len(r) != len(c.record) {
			t.Errorf("%s: %+v, was %+v", c.name, m, old)
		}
	}
	switched := Record(timed(1, 2, 9))
	if b := AppendIdentified(nil, switched, []byte("id")); !bytes.Equal(b, switched) {
		t.Error("a record of another type was changed")
	}
}

// perf's dummy event and tracepoints without callchains stay what they are.
func TestEventsWithoutAStackAreLeftAlone(t *testing.T) {
	const plain = unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME
	for _, c := range []struct {
		name      string
		have      uint64
		want      uint64
		keepsUser bool // exclude_callchain_user
	}{
		{"no callchain", plain, plain, true},
		{"callchain of the kernel", plain | unix.PERF_SAMPLE_CALLCHAIN, plain | unix.PERF_SAMPLE_CALLCHAIN, true},
		{"registers alone", plain | unix.PERF_SAMPLE_REGS_USER, plain, true},
		{"stack", plain | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
			plain | unix.PERF_SAMPLE_CALLCHAIN, false},
	} {
		a := Attr{PerfEventAttr: unix.PerfEventAttr{Sample_type: c.have, Bits: unix.PerfBitExcludeCallchainUser}}
		u := a.Unwound().PerfEventAttr
		if u.Sample_type != c.want || u.Bits&unix.PerfBitExcludeCallchainUser != 0 != c.keepsUser ||
			u.Sample_regs_user|uint64(u.Sample_stack_user) != 0 {
			t.Errorf("%s: sample_type %#x, bits %#x; want %#x", c.name, u.Sample_type, u.Bits, c.want)
		}
		f := NewFormat(&a.PerfEventAttr)
		if g := f.Unwound(); g.SampleType() != c.want {
			t.Errorf("%s: format %#x, want %#x", c.name, g.SampleType(), c.want)
		}
	}
}

// longer are records that the kernel makes too long while there are other profilers, without their trailers.
var longer = map[string][]byte{
	"KSYMBOL, 7 bytes": kernelRecord(RecordKsymbol, make([]byte, 16), []byte("seven..\x00")),
	"KSYMBOL, 8 bytes": kernelRecord(RecordKsymbol, make([]byte, 16), []byte("eight..."), make([]byte, 8)),
	"BPF_EVENT":        kernelRecord(RecordBPFEvent, []byte("ty12id34tag45678")),
	"TEXT_POKE":        kernelRecord(RecordTextPoke, make([]byte, 8), []byte("\x01\x00\x02\x00old\x00")),
}

func kernelRecord(t RecordType, fields ...[]byte) []byte {
	return append(appendHeader(nil, t, unix.PERF_RECORD_MISC_KERNEL), bytes.Join(fields, nil)...)
}

// TestRecordsEndWithTheirTrailer gives records the trailers of other profilers, which the kernel counts and
// does not write.
func TestRecordsEndWithTheirTrailer(t *testing.T) {
	for name, body := range longer {
		for _, sampleType := range []uint64{sampleIDType, unix.PERF_SAMPLE_TIME, 0} {
			f := SampleFormat{sampleType: sampleType, sampleIDAll: sampleType != 0}
			trailer := SampleID{PID: 1, TID: 2, Time: 3, ID: 4, StreamID: 5, CPU: 6}
			want, err := finishRecord(f.appendSampleID(bytes.Clone(body), &trailer), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, stale := range []string{"", "8 bytes.", "what the ring held there before."} {
				r, _ := finishRecord(append(bytes.Clone(want), stale...), 0)
				before := bytes.Clone(r)
				if got := f.Correct(r, new([]byte)); !bytes.Equal(got, want) || !bytes.Equal(r, before) {
					t.Errorf("%s, %q: % x", name, stale, []byte(got))
				}
				var id, of SampleID
				if f.SampleID(want, &of) == nil && (f.SampleID(r, &id) != nil || id != of) {
					t.Errorf("%s, %q: %v", name, stale, id)
				}
				at, timed := f.Time(r)
				cpu, _ := f.CPU(r)
				event, _ := f.ID(r)
				if timed != (of.Time != 0) || at != of.Time || cpu != of.CPU || event != of.ID {
					t.Errorf("%s, %q: time %d, CPU %d, event %d", name, stale, at, cpu, event)
				}
			}
			for n := headerSize; n < len(want); n++ { // must not panic
				short, _ := finishRecord(bytes.Clone(want[:n]), 0)
				f.Correct(short, new([]byte))
				f.Time(short)
			}
		}
	}
}

// TestProfilersBesideEachOther has two Sources, whose rings are full of names, told of programs of the
// kernel's virtual machine. Each gets whole records, and in time what comes after them.
func TestProfilersBesideEachOther(t *testing.T) {
	programs.NeedBPF(t)
	const rounds = 100
	began := Now()
	var sources [2]*Source
	for i := range sources {
		sources[i] = mustOpen(t, Target{AllCPUs: true},
			Options{Events: mustEvents(t, "dummy"), Pages: 64, NoStack: true})
		if err := sources[i].Enable(); err != nil {
			t.Fatal(err)
		}
	}
	var told, renamed, bad [2]int
	drain := func() {
		for i, s := range sources {
			if err := s.Drain(func(r Record) error {
				at, ok := s.Format().Time(r)
				if !ok || at < began || at > Now() || r.Size() != len(r) {
					bad[i]++
				}
				switch r.Type() {
				case RecordBPFEvent, RecordKsymbol:
					told[i]++
					if len(r) != s.Format().written(r) {
						bad[i]++
					}
				case RecordComm:
					renamed[i]++
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
	onCPU(0, func() {
		for n := range rounds {
			for k := range 100 {
				name := [16]byte([]byte("aaaaaaaaaaaaaaa\x00"))
				name[8+(n+k)%7] = 0
				_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0)
			}
			if err := programs.LoadBPF(); err != nil {
				t.Error(err)
			}
			drain()
		}
	})
	drained := func() bool { // the kernel tells of the end of a program later
		drain()
		return min(told[0], told[1]) >= 3*rounds && min(renamed[0], renamed[1]) >= 100*rounds
	}
	lane.Soon(drained)
	for i := range sources {
		if told[i] < 3*rounds || renamed[i] < 100*rounds || bad[i] > 0 {
			t.Errorf("source %d: %d records about programs, %d names, %d with a wrong size or time", i, told[i],
				renamed[i], bad[i])
		}
	}
}
