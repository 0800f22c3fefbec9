package perfring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func TestRecordTypeNames(t *testing.T) {
	for typ, want := range map[RecordType]string{
		1: "MMAP", 9: "SAMPLE", 10: "MMAP2", 21: "AUX_OUTPUT_HW_ID", 64: "HEADER_ATTR", 68: "FINISHED_ROUND",
		81: "COMPRESSED", 82: "FINISHED_INIT", 0: "RecordType(0)", 40: "RecordType(40)",
		1 << 31: "RecordType(2147483648)",
	} {
		if got := typ.String(); got != want {
			t.Errorf("%d: %s, want %s", uint32(typ), got, want)
		}
	}
}

func TestCheckRecordCutsTheFirstRecordOff(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		size int // 0: refused
	}{
		{"empty", nil, 0},
		{"half a header", []byte{9, 0, 0, 0, 0, 0, 8}, 0},
		{"size 0", []byte{9, 0, 0, 0, 0, 0, 0, 0}, 0},
		{"size smaller than header", []byte{9, 0, 0, 0, 0, 0, 7, 0}, 0},
		{"size beyond the end", []byte{9, 0, 0, 0, 0, 0, 9, 0}, 0},
		{"just a header", []byte{9, 0, 0, 0, 0, 0, 8, 0}, 8},
		{"another one behind", []byte{68, 0, 0, 0, 0, 0, 8, 0, 1, 2, 3}, 8},
		{"no multiple of 8, as COMPRESSED", []byte{81, 0, 0, 0, 0, 0, 9, 0, 1, 2}, 9},
	} {
		r, err := CheckRecord(c.b)
		if (err == nil) != (c.size > 0) || len(r) != c.size {
			t.Errorf("%s: %d bytes, %v; want %d", c.name, len(r), err, c.size)
		} else if err == nil && (r.Size() != c.size || len(r.Body()) != c.size-8) {
			t.Errorf("%s: Size %d, body %d", c.name, r.Size(), len(r.Body()))
		}
	}
}

func TestSideBandRecordsSurviveEncodingAndDecoding(t *testing.T) {
	rnd := rand.New(rand.NewSource(6))
	paths := []string{"", "a", "1234567", "12345678", "/usr/lib/x86_64-linux-gnu/libc.so.6", "[vdso]"}
	for i := range 2000 {
		f := randomFormat(rnd)
		path := []byte(paths[i%len(paths)])
		id := SampleID{PID: 1, TID: 2, Time: 3, ID: 4, StreamID: 5, CPU: 6}

		mmap := Mmap{Misc: unix.PERF_RECORD_MISC_USER, PID: 7, TID: 8, Addr: 9, Len: 10, Offset: 11, Path: path}
		mmap2 := Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 7, TID: 8, Addr: 9, Len: 10, Offset: 11,
			Maj: 12, Min: 13, Inode: 14, Generation: 15, Prot: 16, Flags: 17, Path: path}
		byID := Mmap2{Misc: unix.PERF_RECORD_MISC_USER | unix.PERF_RECORD_MISC_MMAP_BUILD_ID, PID: 7, TID: 8,
			Addr: 9, Len: 10,
			Offset: 11, BuildID: []byte("twenty bytes of hash"), Prot: 16, Flags: 17, Path: path}
		byID.BuildID = byID.BuildID[:1+rnd.Intn(20)]
		comm := Comm{PID: 7, TID: 8, Exec: i%2 == 0, Comm: path}
		task := Task{PID: 7, PPID: 8, TID: 9, PTID: 10, Time: 11}

		var gotMmap Mmap
		var gotMmap2, gotByID Mmap2
		var gotComm Comm
		var gotFork, gotExit Task
		for _, c := range []struct {
			encode    func() ([]byte, error)
			decode    func(Record) error
			got, want any
		}{
			{func() ([]byte, error) { return AppendMmap(nil, &f, &mmap, &id) },
				func(r Record) error { return DecodeMmap(r, &gotMmap) }, &gotMmap, &mmap},
			{func() ([]byte, error) { return AppendMmap2(nil, &f, &mmap2, &id) },
				func(r Record) error { return DecodeMmap2(r, &gotMmap2) }, &gotMmap2, &mmap2},
			{func() ([]byte, error) { return AppendMmap2(nil, &f, &byID, &id) },
				func(r Record) error { return DecodeMmap2(r, &gotByID) }, &gotByID, &byID},
			{func() ([]byte, error) { return AppendComm(nil, &f, &comm, &id) },
				func(r Record) error { return DecodeComm(r, &gotComm) }, &gotComm, &comm},
			{func() ([]byte, error) { return appendTask(nil, &f, RecordFork, &task, &id) },
				func(r Record) error { return DecodeTask(r, &gotFork) }, &gotFork, &task},
			{func() ([]byte, error) { return appendTask(nil, &f, RecordExit, &task, &id) },
				func(r Record) error { return DecodeTask(r, &gotExit) }, &gotExit, &task},
		} {
			b, err := c.encode()
			if err != nil {
				t.Fatal(err)
			}
			r, err := CheckRecord(b)
			if err != nil || len(r) != len(b) || len(r)%8 != 0 {
				t.Fatalf("%d bytes, record of %d: %v", len(b), len(r), err)
			}
			if err := c.decode(r); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(c.got, c.want) {
				t.Fatalf("%s: got %+v, want %+v", r.Type(), c.got, c.want)
			}
			checkTrailer(t, &f, r, id)
		}
	}
}

// checkTrailer compares the trailer of r with those fields of want that f has.
func checkTrailer(t *testing.T, f *SampleFormat, r Record, want SampleID) {
	t.Helper()
	var got SampleID
	err := f.SampleID(r, &got)
	tm, hasTime := f.Time(r)
	evID, hasID := f.ID(r)
	if !f.sampleIDAll {
		if !errors.Is(err, ErrNoSampleID) || hasTime || hasID {
			t.Fatalf("trailer without sample_id_all: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if f.sampleType&unix.PERF_SAMPLE_TID == 0 {
		want.PID, want.TID = 0, 0
	}
	if f.sampleType&unix.PERF_SAMPLE_TIME == 0 {
		want.Time = 0
	}
	if f.sampleType&(unix.PERF_SAMPLE_ID|unix.PERF_SAMPLE_IDENTIFIER) == 0 {
		want.ID = 0
	}
	if f.sampleType&unix.PERF_SAMPLE_STREAM_ID == 0 {
		want.StreamID = 0
	}
	if f.sampleType&unix.PERF_SAMPLE_CPU == 0 {
		want.CPU = 0
	}
	if got != want || tm != want.Time || evID != want.ID {
		t.Fatalf("sample_type %#x: trailer %+v, Time %d, ID %d; want %+v", f.sampleType, got, tm, evID, want)
	}
}

func TestEncodersRefusePathsThatFitNoRecord(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxRecordSize)
	out, err := AppendMmap2([]byte("before"), &liveFormat, &Mmap2{Path: long}, &SampleID{})
	if !errors.Is(err, ErrTooLarge) || string(out) != "before" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// appendTask appends a FORK or EXIT record as the kernel makes it.
func appendTask(dst []byte, f *SampleFormat, t RecordType, m *Task, id *SampleID) ([]byte, error) {
	le := binary.LittleEndian
	start := len(dst)
	dst = appendHeader(dst, t, 0)
	dst = le.AppendUint32(le.AppendUint32(dst, m.PID), m.PPID)
	dst = le.AppendUint32(le.AppendUint32(dst, m.TID), m.PTID)
	dst = le.AppendUint64(dst, m.Time)
	return finishRecord(f.appendSampleID(dst, id), start)
}

func TestSideBandDecodersRefuseOtherAndShortRecords(t *testing.T) {
	decoders := map[RecordType]func(Record) error{
		RecordMmap:        func(r Record) error { return DecodeMmap(r, new(Mmap)) },
		RecordMmap2:       func(r Record) error { return DecodeMmap2(r, new(Mmap2)) },
		RecordComm:        func(r Record) error { return DecodeComm(r, new(Comm)) },
		RecordFork:        func(r Record) error { return DecodeTask(r, new(Task)) },
		RecordLost:        func(r Record) error { return DecodeLost(r, new(Lost)) },
		RecordLostSamples: func(r Record) error { return DecodeLostSamples(r, new(LostSamples)) },
	}
	for typ, decode := range decoders {
		short, _ := finishRecord(appendHeader(nil, typ, 0), 0)
		if err := decode(short); err == nil || !strings.Contains(err.Error(), typ.String()) {
			t.Errorf("%s without a body: %v", typ, err)
		}
		other, _ := finishRecord(append(appendHeader(nil, RecordSwitch, 0), make([]byte, 100)...), 0)
		if err := decode(other); err == nil {
			t.Errorf("%s decoded from SWITCH", typ)
		}
		if err := decode(nil); err == nil {
			t.Errorf("%s decoded from nothing", typ)
		}
	}
	noNUL, _ := finishRecord(append(appendHeader(nil, RecordComm, 0), bytes.Repeat([]byte{1}, 24)...), 0)
	if err := DecodeComm(noNUL, new(Comm)); err == nil {
		t.Error("COMM without a NUL decoded")
	}
}

func FuzzSideBand(f *testing.F) {
	id := SampleID{PID: 1, TID: 2, Time: 3, ID: 4, CPU: 5}
	for _, typ := range []RecordType{RecordMmap, RecordMmap2, RecordComm, RecordFork, RecordLost,
		RecordLostSamples} {
		b, _ := AppendMmap2(nil, &liveFormat, &Mmap2{Path: []byte("/bin/true"), BuildID: []byte("id")}, &id)
		b[0] = byte(typ)
		f.Add(b)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte) {
		defer costs.For(len(b)).Check(t)()
		r, err := CheckRecord(b)
		if err != nil {
			return
		}
		var id SampleID
		_ = liveFormat.SampleID(r, &id)
		_ = DecodeMmap(r, new(Mmap))
		_ = DecodeComm(r, new(Comm))
		_ = DecodeTask(r, new(Task))
		_ = DecodeLost(r, new(Lost))
		_ = DecodeLostSamples(r, new(LostSamples))
		var m, again Mmap2
		if DecodeMmap2(r, &m) != nil || m.BuildID != nil && len(m.BuildID) == 0 {
			return
		}
		out, err := AppendMmap2(nil, &liveFormat, &m, &id)
		if err != nil {
			return
		}
		if err := DecodeMmap2(out, &again); err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v: %v", m, again, err)
		}
	}))
}
