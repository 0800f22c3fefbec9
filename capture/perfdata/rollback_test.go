package perfdata

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"unsafe"

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

// TestFailedFlushIsTakenBack runs out of room in the middle of a flush. The file must be as it was before,
// and is finished in the room that is free again.
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
			for n := 0; err == nil && n < 1000; n++ { // until the buffer has to be written
				chain := make([]uint64, 500)
				for i := range chain { // random, so that it cannot be compressed
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

// failWritesAt makes every write of this thread at a file's offset fail, for good.
func failWritesAt(offset uint32) error {
	const (
		number, position = 0, 16 + 3*8 // of the system call and its fourth argument, in struct seccomp_data
		load             = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal            = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer           = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_PWRITE64, Jf: 3},
		{Code: load, K: position},
		{Code: equal, K: offset, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// TestFailedHeaderIsTakenBack lets a flush write everything but the size in the header. The table of
// features, which the data has overwritten, must be in its old place again.
func TestFailedHeaderIsTakenBack(t *testing.T) {
	events := twoEvents()
	records := recording(t, events, 1, 300)
	path := filepath.Join(t.TempDir(), "perf.data")
	w := write(t, Options{Path: path, Events: events, Compress: 1}, records, nil)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.table) == 0 {
		t.Fatal("no feature stands behind the data: nothing to take back")
	}
	refused, failed := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		refused <- failWritesAt(sizeAt)
		if err := w.Write(sample(11, 1_400_000_000, 77, 1, 2, 3)); err != nil {
			t.Error(err)
		}
		failed <- w.Round()
	}()
	if err := <-refused; err != nil {
		t.Skipf("no filter of system calls: %v", err)
	}
	if err := <-failed; !errors.Is(err, unix.EIO) {
		t.Fatalf("the header was written: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("%d bytes after the failed flush, %d before, or others; %v", len(after), len(before), err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	got, err := readAll(openFile(t, path))
	if want := slices.Concat(records...); !reflect.DeepEqual(got, want) || err != nil {
		t.Errorf("%d records of %d, %v", len(got), len(want), err)
	}
}
