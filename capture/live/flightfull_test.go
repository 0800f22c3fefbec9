package live

import (
	"encoding/binary"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/perfring"
)

// TestFlightSurvivesAFullDisk: a dump that does not fit leaves no file, and the next one has all that was kept.
func TestFlightSurvivesAFullDisk(t *testing.T) {
	dir := t.TempDir()
	place, err := output.Find(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Sample_type: unix.PERF_SAMPLE_IDENTIFIER}
	f, err := newFlight(&Rotation{Last: time.Hour, Place: place, Most: 2}, perfdata.Options{
		Events: []perfring.Attr{{Name: "cpu-clock", PerfEventAttr: attr, IDs: []uint64{1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.begins = func(Destination) error { return nil }
	const size, records = 60000, 20
	rec := make([]byte, size)
	binary.NativeEndian.PutUint32(rec, uint32(perfring.RecordComm))
	binary.NativeEndian.PutUint16(rec[6:], size)
	for range records {
		if err := f.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}

	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	full := unix.Rlimit{Cur: size * records / 2, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	err = f.dump(true)
	if serr := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); serr != nil {
		t.Fatal(serr)
	}
	if left := names(); err == nil || len(left) > 0 {
		t.Fatalf("without room: %v, files %q", err, left)
	}
	if err := f.dump(true); err != nil {
		t.Fatal(err)
	}
	left := names()
	if len(left) != 1 {
		t.Fatalf("files %q", left)
	}
	if _, ok := output.ParseDated("f", left[0]); !ok {
		t.Fatalf("file %q", left[0])
	}
	r, err := perfdata.Open(filepath.Join(dir, left[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for rec, err := r.Next(); err == nil; rec, err = r.Next() {
		if len(rec) == size {
			n++
		}
	}
	if n != records {
		t.Errorf("%d records of %d", n, records)
	}
}
