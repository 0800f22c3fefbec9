package perfdata

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// limitFiles makes every write beyond a size fail, as on a full disk, until the returned function is called.
func limitFiles(t *testing.T, size int64) (lift func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		signal.Reset(unix.SIGXFSZ)
	}
}

// TestFailedFlushIsTakenBack runs out of room in the middle of a flush. The file is what it was
// before, and is completed in the room that this leaves.
func TestFailedFlushIsTakenBack(t *testing.T) {
	const more = 16 << 10 // enough for the features, not for a round
	for _, l := range layouts {
		if l.pipe {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			events := twoEvents()
			records := recording(t, events, 1, 300)
			path := filepath.Join(t.TempDir(), "perf.data")
			w := write(t, Options{Path: path, Events: events, Compress: l.compress}, records, nil)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lift := limitFiles(t, int64(len(before)+more))
			x := uint32(1)
			for n := 0; err == nil && n < 1000; n++ { // until it has to be written
				chain := make([]uint64, 500)
				for i := range chain { // not to be compressed
					x = x*1664525 + 1013904223
					chain[i] = uint64(x) << 32
				}
				err = w.Write(sample(11, 1_400_000_000, 77, chain...))
			}
			after, rerr := os.ReadFile(path)
			cerr := w.Close()
			lift()
			if !errors.Is(err, unix.EFBIG) || rerr != nil {
				t.Fatalf("beyond the limit: %v, %v", err, rerr)
			}
			if !bytes.Equal(before, after) {
				t.Errorf("%d bytes after the failed flush, %d before, or others", len(after), len(before))
			}
			if cerr != nil {
				t.Errorf("Close: %v", cerr)
			}
			r := openFile(t, path)
			got, err := readAll(r)
			if want := slices.Concat(records...); !reflect.DeepEqual(got, want) || err != nil {
				t.Errorf("%d records of %d, %v", len(got), len(want), err)
			}
			if host, _ := os.Hostname(); r.Text(Hostname) != host || r.FeatureDamage() != nil {
				t.Errorf("host %q, %v", r.Text(Hostname), r.FeatureDamage())
			}
			if st, err := os.Stat(path); err != nil || st.Size() != w.Written() {
				t.Errorf("Written says %d, %v, %v", w.Written(), st.Size(), err)
			}
		})
	}
}
