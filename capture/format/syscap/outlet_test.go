package syscap

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipe makes a pipe and an outlet into it.
func pipe(t testing.TB) (reader int, o *outlet) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	_ = unix.SetNonblock(fds[0], true)
	o, err := newOutlet(fds[1])
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], o
}

// numbered is a frame of some size with a number.
func numbered(n, size int) []byte {
	b := le.AppendUint16(nil, uint16(size))
	b = le.AppendUint32(b, uint32(n))
	return append(b, bytes.Repeat([]byte{byte(n)}, size-len(b))...)
}

// TestAPacketIsAFrame has a reader take what was queued: each read returns one frame, or a part of one that
// is larger than a packet, and what the queue had no room for is counted.
func TestAPacketIsAFrame(t *testing.T) {
	reader, o := pipe(t)
	sizes := []int{24, 4096, 4104, 65528, 32}
	sent := 0
	for o.dropped == 0 && sent < 10000 {
		if err := o.send(numbered(sent, sizes[sent%len(sizes)]), false); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	if len(o.queue)-o.from > mostQueued || len(o.queue)-o.from < mostQueued-maxFrame {
		t.Errorf("%d bytes are queued", len(o.queue)-o.from)
	}
	if err := o.send(numbered(sent, 24), true); err != nil { // in any case
		t.Fatal(err)
	}
	buf := make([]byte, 1<<17)
	var whole []byte
	got, left := 0, 0
	for {
		n, err := unix.Read(reader, buf)
		if errors.Is(err, unix.EAGAIN) {
			if !o.waits() {
				break
			}
			if err := o.pump(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || n > packet {
			t.Fatalf("a read of %d bytes, %v", n, err)
		}
		if left == 0 {
			left, whole = int(le.Uint16(buf)), nil
		}
		if n > left {
			t.Fatalf("a read of %d bytes at %d before the end of frame %d", n, left, got)
		}
		whole = append(whole, buf[:n]...)
		if left -= n; left > 0 {
			continue
		}
		want := numbered(got, sizes[got%len(sizes)])
		if got == sent-1 {
			want = numbered(sent, 24)
		}
		if !bytes.Equal(whole, want) {
			t.Fatalf("frame %d has %d bytes and begins with % x", got, len(whole), whole[:8])
		}
		got++
	}
	if got != sent || o.dropped != 1 { // the last one was dropped, and another followed
		t.Errorf("%d frames of %d arrived, %d were dropped", got, sent, o.dropped)
	}
	if o.queue != nil {
		t.Errorf("the empty queue keeps %d bytes", cap(o.queue))
	}
}

func TestAReaderThatHasGone(t *testing.T) {
	reader, o := pipe(t)
	if err := o.send(numbered(1, 24), false); err != nil {
		t.Fatal(err)
	}
	unix.Close(reader)
	if err := o.pump(); !errors.Is(err, unix.EPIPE) {
		t.Errorf("%v", err)
	}
	if err := o.send(numbered(1, 24), false); !errors.Is(err, unix.EPIPE) {
		t.Errorf("%v", err)
	}
	if err := o.finish(time.Minute); !errors.Is(err, unix.EPIPE) {
		t.Errorf("%v", err)
	}
}

func TestTheEndDoesNotWaitForAReader(t *testing.T) {
	_, o := pipe(t)
	for range 2000 {
		if err := o.send(numbered(1, 4096), false); err != nil {
			t.Fatal(err)
		}
	}
	waits := uint64(len(o.sizes) - o.first)
	if err := o.finish(time.Millisecond); err != nil || o.dropped != waits || waits == 0 {
		t.Errorf("%d frames were given up of %d that wait, %v", o.dropped, waits, err)
	}
}

func TestWhatIsNoOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, fd := range []int{int(file.Fd()), 1 << 20, -1} {
		if _, err := newOutlet(fd); err == nil {
			t.Errorf("descriptor %d is accepted", fd)
		}
	}
}
