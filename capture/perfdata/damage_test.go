package perfdata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"unspool/perfring"
	"unspool/testdata/programs"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// small returns a small recording in one of the layouts.
func small(t testing.TB, pipe bool, compress int) []byte {
	t.Helper()
	events := twoEvents()
	var out bytes.Buffer
	o := Options{Path: "-", Out: &out, Events: events, Compress: compress, CommandLine: []string{"unspool"}}
	if !pipe {
		o.Path = filepath.Join(t.TempDir(), "perf.data")
	}
	w := write(t, o, recording(t, events, 3, 5), nil)
	w.BuildID("/opt/app/hello", []byte{1, 2, 3, 4}, false)
	closeWriter(t, w)
	if pipe {
		return out.Bytes()
	}
	data, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func open(data []byte) (*Reader, error) {
	return newReader("test", bytes.NewReader(data), bytes.NewReader(data), int64(len(data)))
}

func TestRecordingCutAtEveryByte(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			data := small(t, l.pipe, l.compress)
			r, err := open(data)
			if err != nil {
				t.Fatal(err)
			}
			want, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			most := 0
			for n := range data {
				r, err := open(data[:n])
				if err != nil {
					continue
				}
				got, err := readAll(r)
				r.Close()
				if len(got) < most || len(got) > len(want) || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
					t.Fatalf("cut at %d: %d records, %d before", n, len(got), most)
				}
				most = len(got)
				var damage *DamageError
				if err != nil && !errors.As(err, &damage) {
					t.Fatalf("cut at %d: %v", n, err)
				}
				if damage != nil && damage.Offset > int64(n) {
					t.Fatalf("cut at %d: damage at offset %d", n, damage.Offset)
				}
				if err == nil && len(got) < len(want) && !l.pipe {
					t.Fatalf("cut at %d: %d records and no damage", n, len(got))
				}
			}
			if most != len(want) {
				t.Errorf("%d records, %d expected", most, len(want))
			}
		})
	}
}

func TestUnfinishedFileIsReadToItsEnd(t *testing.T) {
	data := small(t, false, 0)
	end := le.Uint64(data[40:]) + le.Uint64(data[48:])
	le.PutUint64(data[48:], 0)
	r, err := open(data[:end])
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(recording(t, twoEvents(), 3, 5)...)
	if got, err := readAll(r); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d of %d records, %v", len(got), len(want), err)
	}
	if name := r.Events()[1].Name; name != "task-clock" {
		t.Errorf("the event is called %q", name)
	}
}

func TestWhatIsNoRecordingIsSaidInWords(t *testing.T) {
	swapped := []byte("2ELIFREP\x00\x00\x00\x00\x00\x00\x00\x68")
	header := func(change func(h *fileHeader)) []byte {
		const size = fileAttrSize + 16
		h := fileHeader{Magic: magic, Size: headerSize, AttrSize: size, Attrs: section{104, size},
			Data: section{300, 8}}
		change(&h)
		b := encode(nil, h)
		b = append(appendAttr(b, liveEvent("", 0).PerfEventAttr, fileAttrSize), make([]byte, 500)...)
		return b
	}
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "empty"},
		{"few bytes", []byte("PERF"), "not a perf.data file"},
		{"an ELF file", append([]byte("\x7fELF"), make([]byte, 200)...), "not a perf.data file"},
		{"big-endian", swapped, "big-endian"},
		{"old perf", []byte("PERFFILE0000000000000000"), "older than"},
		{"strange header", header(func(h *fileHeader) { h.Size = 200 }), "header of 200 bytes"},
		{"no attributes", header(func(h *fileHeader) { h.Attrs.Size = 0 }), "attributes of 0 bytes"},
		{"attributes beyond the end", header(func(h *fileHeader) { h.Attrs.Offset = 1 << 63 }),
			"attributes of 128 bytes"},
		{"attributes without size", header(func(h *fileHeader) { h.AttrSize = 0 }), "attributes of 0 bytes each"},
		{"later attributes", header(func(h *fileHeader) { h.AttrSize, h.Attrs.Size, h.Attrs.Offset = 400, 400, 0 }),
			"later perf"},
		{"data beyond the end", header(func(h *fileHeader) { h.Data.Offset = 1 << 40 }), "data at offset"},
		{"endless data", header(func(h *fileHeader) { h.Data.Size = 1<<64 - 1 }), "data of"},
	} {
		if _, err := open(test.data); err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.HasPrefix(err.Error(), "test: ") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := newReader("-", bytes.NewReader(small(t, false, 0)), nil, 0); err == nil ||
		!strings.Contains(err.Error(), "through a pipe") {
		t.Errorf("a file in a pipe: %v", err)
	}
}

func TestAttributesOfOtherSizes(t *testing.T) {
	for _, size := range []int{64, 72, 80, 96, 104, 112, 120, 128, 136, 144, 200} {
		attr := liveEvent("", 1, 5)
		attr.PerfEventAttr.Sample_type = sampleType
		b := append(appendAttr(nil, attr.PerfEventAttr, 128), make([]byte, 100)...)[:size]
		le.PutUint32(b[4:], uint32(size))
		file := encode(nil, fileHeader{Magic: magic, Size: headerSize, AttrSize: uint64(size + 16),
			Attrs: section{104, uint64(size + 16)}, Data: section{uint64(104 + size + 24), 80}})
		file = append(file, b...)
		file = encode(file, section{uint64(104 + size + 16), 8})
		file = le.AppendUint64(file, 5)
		file = append(file, sample(5, 77, 1, 2)...)
		r, err := open(file)
		if err != nil {
			t.Errorf("%d: %v", size, err)
			continue
		}
		rec, err := r.Next()
		if err != nil {
			t.Errorf("%d: %v", size, err)
			continue
		}
		if time, _ := r.Format(rec).Time(rec); time != 77 || r.Event(5) != 0 ||
			r.Events()[0].PerfEventAttr.Config != 1 {
			t.Errorf("%d: time %d, %+v", size, time, r.Events()[0])
		}
	}
}

// A payload of 64 KiB that expands to gigabytes takes only the memory of one block of zstd.
func TestCompressionBombTakesNoMemory(t *testing.T) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	rec := appendHeader(nil, perfring.RecordThrottle, 0, 32)
	frame := enc.EncodeAll(bytes.Repeat(append(rec, make([]byte, 24)...), 8<<20), nil)
	if len(frame) > 60000 {
		t.Fatalf("frame of %d bytes", len(frame))
	}
	data := small(t, true, 0)
	data = append(appendHeader(data, perfring.RecordCompressed, 0, 8+len(frame)), frame...)
	r, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		if rec.Type() == perfring.RecordThrottle {
			n++
		}
	}
	runtime.ReadMemStats(&after)
	if n != 8<<20 {
		t.Errorf("%d records", n)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
		t.Errorf("%d bytes allocated", used)
	}
}

// TestCompressed2: a COMPRESSED2 record says how much data it holds; one that says more than that is damaged.
func TestCompressed2(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := enc.EncodeAll(sample(11, 99, 1, 2), nil)
	size := align(16+len(frame), 8)
	good := le.AppendUint64(appendHeader(nil, perfring.RecordCompressed2, 0, size), uint64(len(frame)))
	good = append(append(good, frame...), make([]byte, size-16-len(frame))...)
	bad := slices.Clone(good)
	bad[8] = 0xff
	start := small(t, true, 0)
	for _, test := range []struct {
		rec    []byte
		damage bool
	}{{good, false}, {bad, true}} {
		r, err := open(append(slices.Clone(start), test.rec...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		var damage *DamageError
		if errors.As(err, &damage) != test.damage {
			t.Errorf("error %v", err)
		}
		if test.damage && damage.Offset != int64(len(start)) {
			t.Errorf("damage at %d of %d", damage.Offset, len(start))
		}
		if !test.damage && !bytes.Equal(got[len(got)-1], sample(11, 99, 1, 2)) {
			t.Errorf("last record %x", got[len(got)-1])
		}
	}
	const held = 16 // bytes behind the size
	for size, damage := range map[uint64]bool{0: false, held: false, held + 1: true, held + 16: true, 1 << 63: true} {
		body := append(le.AppendUint64(make([]byte, 0, 64), size), make([]byte, held)...)
		if got, err := compressed2(body); (err != nil) != damage || !damage && uint64(len(got)) != size {
			t.Errorf("%d bytes of data in a record with %d: %d bytes, %v", size, held, len(got), err)
		}
	}
	if _, err := compressed2(make([]byte, 7)); err == nil {
		t.Error("a record that is too short for the size is taken")
	}
}

// One frame that spans all payloads, cut anywhere, among records that are not compressed, as perf writes it.
func TestOneFrameOverManyRecords(t *testing.T) {
	var frame bytes.Buffer
	enc, err := zstd.NewWriter(&frame, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	data := small(t, true, 0)
	r, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	carry := []byte{}
	for i := range 50 {
		rec := sample(11, uint64(1+i), 1, make([]uint64, 1+i)...)
		cut := (i * 7) % len(rec)
		_, _ = enc.Write(append(carry, rec[:cut]...))
		if err := enc.Flush(); err != nil {
			t.Fatal(err)
		}
		carry = slices.Clone(rec[cut:])
		plain := sample(12, uint64(100+i), 1, 1)
		data = append(appendHeader(data, perfring.RecordCompressed, 0, 8+frame.Len()), frame.Bytes()...)
		data = append(data, plain...)
		frame.Reset()
		if i > 0 {
			want = append(want, sample(11, uint64(i), 1, make([]uint64, i)...))
		}
		want = append(want, plain)
	}
	if r, err = open(data); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d records, %d expected", len(got), len(want))
	}
	if err == nil || !strings.Contains(err.Error(), "ends inside a record") {
		t.Errorf("the last record is incomplete: %v", err)
	}
}

func TestDamageIsTold(t *testing.T) {
	data := small(t, false, 0)
	at := int(le.Uint64(data[40:]))
	for range 3 {
		at += int(le.Uint16(data[at+6:]))
	}
	le.PutUint16(data[at+6:], 3)
	r, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = r.Ordered(func(perfring.Record, *perfring.SampleFormat, uint64) error { n++; return nil })
	var damage *DamageError
	if !errors.As(err, &damage) || damage.Offset != int64(at) || n != 3 {
		t.Errorf("%d records, then %v, expected damage at %d\n%s", n, err, at, hex.Dump(data[at:][:16]))
	}
}

// On a full file system, the file ends with the last flush that fitted, and is readable.
func TestFullDisk(t *testing.T) {
	programs.NeedMounts(t)
	for _, compress := range []int{0, 1} {
		skip := make(chan string, 1)
		dir := t.TempDir()
		go func() {
			defer close(skip)
			// Only this thread has the mount; the thread ends with the goroutine that it is locked to.
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				skip <- fmt.Sprintf("a mount namespace of our own needs CAP_SYS_ADMIN: %v", err)
				return
			}
			err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
			if err == nil {
				err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")
			}
			if err != nil {
				skip <- fmt.Sprintf("mounting a tmpfs: %v", err)
				return
			}
			path := filepath.Join(dir, "perf.data")
			w, err := Create(Options{Path: path, Events: twoEvents(), Compress: compress})
			if err != nil {
				t.Error(err)
				return
			}
			x := uint64(1)
			chain := make([]uint64, 500)
			for i := range 1 << 20 {
				for i := range chain {
					x = x*6364136223846793005 + 1442695040888963407
					chain[i] = x >> 1
				}
				if err = w.Write(sample(11, uint64(1+i), 77, chain...)); err != nil {
					break
				}
			}
			if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) {
				t.Errorf("full disk: %v", err)
			}
			if err := w.Close(); err != nil {
				t.Errorf("said again: %v", err)
			}
			r, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			got, err := readAll(r)
			if len(got) < 100 || err != nil || r.Text(OSRelease) == "" {
				t.Errorf("compression %d: %d records, release %q, %v", compress, len(got), r.Text(OSRelease), err)
			}
		}()
		if why := <-skip; why != "" {
			t.Skip(why)
		}
	}
}

// TestAPipeTellsOfSoManyEvents describes events until no more are taken.
func TestAPipeTellsOfSoManyEvents(t *testing.T) {
	b := le.AppendUint64(le.AppendUint64(nil, magic), pipeSize)
	for i := range maxEvents + 1 {
		b = appendHeaderAttrs(b, liveEvent("", uint64(i)), true)
	}
	path := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := openFile(t, path)
	_, err := r.Next()
	var damage *DamageError
	if !errors.As(err, &damage) || len(r.Events()) != maxEvents {
		t.Errorf("%d events, %v", len(r.Events()), err)
	}
}
