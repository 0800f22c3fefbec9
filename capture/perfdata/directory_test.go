package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/perfring"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// directory makes a recording of a process, and of the rings' records in pieces, as perf record --threads does.
// version is that of the directory, negative for a recording that was not finished, which has none.
func directory(t testing.TB, version int64, pieces ...[]byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "perf.data")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	events := twoEvents()
	w, err := Create(Options{Path: filepath.Join(path, mainFile), Events: events})
	if err != nil {
		t.Fatal(err)
	}
	if version >= 0 {
		at, _ := slices.BinarySearchFunc(w.static, DirFormat, func(f feature, n Feature) int { return int(f.num) - int(n) })
		w.static = slices.Insert(w.static, at, feature{DirFormat, le.AppendUint64(nil, uint64(version))})
	}
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	f = f.Unwound()
	for _, rec := range process(t, &f, 0, 0, 77, "hello", "/opt/app/hello") {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	for i, piece := range pieces {
		writePiece(t, path, i, piece)
	}
	return path
}

func writePiece(t testing.TB, path string, i int, piece []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path, fmt.Sprintf("%s.%d", mainFile, i)), piece, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ring is what a ring holds: samples at times.
func ring(times ...uint64) (b []byte) {
	for _, time := range times {
		b = append(b, sample(11, time, 77, 0x401000)...)
	}
	return b
}

// compressed is a ring as perf record -z writes it: one stream for all records, in payloads that end where they do.
func compressed(t testing.TB, ring []byte) (b []byte) {
	t.Helper()
	var payload bytes.Buffer
	enc, err := zstd.NewWriter(&payload, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(512<<10))
	if err != nil {
		t.Fatal(err)
	}
	const part = 1000 // not a whole number of records
	for ; len(ring) > 0; ring = ring[min(part, len(ring)):] {
		payload.Reset()
		if _, err := enc.Write(ring[:min(part, len(ring))]); err != nil {
			t.Fatal(err)
		}
		if err := enc.Flush(); err != nil {
			t.Fatal(err)
		}
		b = appendHeader(b, perfring.RecordCompressed, 0, recordHeader+payload.Len())
		b = append(b, payload.Bytes()...)
	}
	return b
}

// sampleTimes reads the times of all samples of a recording.
func sampleTimes(t testing.TB, r *Reader) (times []uint64, err error) {
	t.Helper()
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, time uint64) error {
		if rec.Type() != perfring.RecordSample {
			return nil
		}
		if at, ok := f.Time(rec); !ok || at != time {
			t.Errorf("a record of time %d comes with %d", at, time)
		}
		times = append(times, time)
		return nil
	})
	return times, err
}

const ms = 1_000_000

// The files of a directory are merged by time: also where a record is before a slightly earlier one, as in a
// ring, where a ring has few records, and where one was not finished.
func TestFilesOfADirectoryAreMerged(t *testing.T) {
	var busy, other, idle []uint64
	for i := range uint64(5000) {
		busy = append(busy, (i+1)*ms)
		other = append(other, (i+1)*ms+ms/2)
	}
	busy[100], busy[101] = busy[101], busy[100]
	for i := range uint64(5) {
		idle = append(idle, i*1000*ms+777)
	}
	want := slices.Sorted(slices.Values(slices.Concat(busy, other, idle)))
	for _, version := range []int64{dirVersion, -1} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("version %d, compressed %v", version, packed), func(t *testing.T) {
				pieces := [][]byte{ring(busy...), nil, ring(other...), ring(idle...)}
				for i := range pieces {
					if packed {
						pieces[i] = compressed(t, pieces[i])
					}
				}
				r := openFile(t, directory(t, version, pieces...))
				got, err := sampleTimes(t, r)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%d samples, %d expected, in order: %v; %v", len(got), len(want), slices.IsSorted(got), err)
				}
				if read, total := r.Position(); read != total || total < int64(len(pieces[0])) {
					t.Errorf("read %d of %d bytes", read, total)
				}
			})
		}
	}
}

// What is kept back of a directory is what a few milliseconds of all files have, however many there are and however
// seldom one has a record.
func TestMergingKeepsLittleBack(t *testing.T) {
	var pieces [][]byte
	for i := range uint64(20) {
		var times []uint64
		for n := range uint64(2000) {
			times = append(times, (n+1)*ms+i)
		}
		pieces = append(pieces, ring(times...))
	}
	pieces = append(pieces, ring(5, 1999*ms), ring(1<<63))
	r := openFile(t, directory(t, dirVersion, pieces...))
	q := queue{limit: maxQueue}
	most, n := 0, 0
	err := r.ordered(&q, func(rec perfring.Record, _ *perfring.SampleFormat, _ uint64) error {
		most = max(most, len(q.items))
		if rec.Type() == perfring.RecordSample {
			n++
		}
		return nil
	})
	if kept := 20 * 4 * int(disorder) / ms; err != nil || most > kept || n != 20*2000+3 {
		t.Errorf("%d of %d records are kept back, %d at most expected; %v", most, n, kept, err)
	}
	if made := r.pool.made; made > 5*len(pieces) {
		t.Errorf("%d blocks for %d files", made, len(pieces))
	}
}

// What is wrong with one file costs what that has from there on.
func TestDamageCostsOneFile(t *testing.T) {
	good := ring(1*ms, 3*ms, 5*ms)
	bad := ring(2*ms, 4*ms)
	at := len(bad)
	for _, test := range []struct {
		name  string
		spoil func(path string) error
		left  int // samples of the file
		want  string
	}{
		{"no record", func(path string) error {
			return os.WriteFile(path, append(slices.Clone(bad), make([]byte, 64)...), 0o600)
		}, 2, fmt.Sprintf("damaged at offset %d: UNKNOWN", at)},
		{"cut", func(path string) error { return os.WriteFile(path, bad[:at-8], 0o600) }, 1,
			fmt.Sprintf("damaged at offset %d: the recording ends too early", at/2)},
		{"cut, compressed", func(path string) error {
			packed := compressed(t, bad)
			return os.WriteFile(path, packed[:len(packed)-4], 0o600)
		}, 0, "damaged at offset 0: the recording ends too early"},
		{"a link", func(path string) error { return os.Symlink("/etc/passwd", path) }, 0,
			"not read: a symbolic link, which is not followed"},
		{"a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, 0, "not read: not a regular file"},
		{"a device", func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, 1<<8|5) }, 0,
			"not read: not a regular file"},
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }, 0, "not read: not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := directory(t, dirVersion, good)
			path := filepath.Join(dir, mainFile+".1")
			if err := test.spoil(path); err == unix.EPERM {
				t.Skip("only root makes devices")
			} else if err != nil {
				t.Fatal(err)
			}
			got, err := sampleTimes(t, openFile(t, dir))
			var damage *DamageError
			if !errors.As(err, &damage) || damage.Path != path {
				t.Fatalf("%v, want one about %s", err, path)
			}
			want := strings.Replace(test.want, "UNKNOWN", damage.Err.Error(), 1)
			if len(got) != 3+test.left || !slices.IsSorted(got) || damage.Error() != path+": "+want {
				t.Errorf("%d samples, %d expected; %v", len(got), 3+test.left, err)
			}
		})
	}
	t.Run("two", func(t *testing.T) {
		dir := directory(t, dirVersion, bad[:at-8], good, bad[:at-8])
		got, err := sampleTimes(t, openFile(t, dir))
		if err == nil || len(got) != 5 || !strings.Contains(err.Error(), "data.0: damaged") ||
			!strings.Contains(err.Error(), "data.2: damaged") {
			t.Errorf("%d samples; %v", len(got), err)
		}
	})
}

// A directory is read as far as there is room for its files, and only what belongs to the recording is.
func TestFilesOfADirectoryAreBounded(t *testing.T) {
	dir := directory(t, dirVersion, ring(1))
	for _, name := range []string{"data.old", "data.01", "data.-1", "data.x", "data.", "more"} {
		if err := os.WriteFile(filepath.Join(dir, name), ring(2), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := sampleTimes(t, openFile(t, dir)); err != nil || len(got) != 1 {
		t.Errorf("%d samples, %v", len(got), err)
	}
	most := maxOpen()
	for i := 1; i <= most; i++ {
		if err := os.Link(filepath.Join(dir, "data.0"), filepath.Join(dir, fmt.Sprintf("data.%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	got, err := sampleTimes(t, openFile(t, dir))
	want := fmt.Sprintf("%s: not read: %d files with records: only the first %d are read", dir, most+1, most)
	if len(got) != most || err == nil || err.Error() != want {
		t.Errorf("%d samples, %v", len(got), err)
	}
}

func TestOtherDirectories(t *testing.T) {
	single := directory(t, dirSingleFile, ring(1))
	if got, err := sampleTimes(t, openFile(t, single)); err != nil || len(got) != 0 {
		t.Errorf("%d samples of files that the recording does not tell of, %v", len(got), err)
	}
	if r, err := Open(directory(t, dirVersion+1)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), ": a directory, not a perf.data file") {
		t.Errorf("%v, %v", r, err)
	}
	linked := t.TempDir()
	if err := os.Symlink(filepath.Join(single, mainFile), filepath.Join(linked, mainFile)); err != nil {
		t.Fatal(err)
	}
	if r, err := Open(linked); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("%v, %v", r, err)
	}
}
