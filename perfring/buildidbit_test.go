package perfring

import (
	"bytes"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// mmap2 makes an MMAP2 record without a trailer, its misc bits as given.
func mmap2(t *testing.T, misc uint16, buildID []byte) Record {
	t.Helper()
	b, err := AppendMmap2(nil, new(Format),
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
	var asksNot Format
	own := asksNot.AllowBuildIDs()
	for _, c := range []struct {
		name   string
		format *Format
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
		r := c.format.ClearBuildIDBit(c.record, nil)
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
