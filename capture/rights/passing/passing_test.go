package passing

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connected returns both ends of a connection.
func connected(t *testing.T) (a, b int) {
	t.Helper()
	a, b, err := Sockets()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(a); unix.Close(b) })
	return a, b
}

// A message arrives whole, with its file, until the other end is closed.
func TestMessages(t *testing.T) {
	t.Parallel()
	a, b := connected(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, _, err := ReceiveNow(b, make([]byte, 1)); err != unix.EAGAIN {
		t.Errorf("nothing was sent: %v", err)
	}
	for _, receive := range []func(int, []byte) (int, int, error){Receive, ReceiveNow} {
		for _, send := range []int{-1, int(file.Fd())} {
			text := []byte(strings.Repeat("message", 1000))
			if err := Send(a, text, send); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, len(text)+1)
			n, fd, err := receive(b, buf)
			if err != nil || !bytes.Equal(buf[:n], text) || (fd >= 0) != (send >= 0) {
				t.Fatalf("%d bytes and descriptor %d, %v", n, fd, err)
			}
			if fd < 0 {
				continue
			}
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err != nil || flags != unix.FD_CLOEXEC {
				t.Errorf("flags of the descriptor: %#x, %v", flags, err)
			}
			got := os.NewFile(uintptr(fd), "")
			if same(t, got, file); got.Close() != nil {
				t.Error("it cannot be closed")
			}
		}
	}
	if err := unix.Shutdown(a, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	if n, fd, err := Receive(b, make([]byte, 1)); n != 0 || fd != -1 || err != nil {
		t.Errorf("at the end: %d bytes and descriptor %d, %v", n, fd, err)
	}
	if err := Send(b, []byte{1}, -1); err != unix.EPIPE {
		t.Errorf("after the end: %v", err)
	}
}

func same(t *testing.T, a, b *os.File) {
	t.Helper()
	as, err := a.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if bs, err := b.Stat(); err != nil || !os.SameFile(as, bs) {
		t.Errorf("another file, %v", err)
	}
}

// Of several descriptors in a message, the first one is received, and the others are closed.
func TestOneDescriptorAtMost(t *testing.T) {
	a, b := connected(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fds := []int{a, int(w.Fd()), int(w.Fd())}
	if err := unix.Sendmsg(a, []byte{1}, unix.UnixRights(fds...), nil, 0); err != nil {
		t.Fatal(err)
	}
	n, fd, err := Receive(b, make([]byte, 1))
	if n != 1 || fd < 0 || err != nil {
		t.Fatalf("%d bytes and descriptor %d, %v", n, fd, err)
	}
	unix.Close(fd)
	w.Close()
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("one of them is open still")
	}
}

// Where nothing is received, sending waits: no longer than the socket's option says.
func TestSendingWaits(t *testing.T) {
	t.Parallel()
	a, b := connected(t)
	most := unix.NsecToTimeval(int64(10 * time.Millisecond))
	if err := unix.SetsockoptTimeval(a, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &most); err != nil {
		t.Fatal(err)
	}
	text, sent := make([]byte, 16<<10), 0
	var err error
	for ; err == nil; sent++ {
		err = Send(a, text, -1)
	}
	if err != unix.EAGAIN || sent < 2 {
		t.Fatalf("message %d: %v", sent, err)
	}
	none := unix.Timeval{}
	if err := unix.SetsockoptTimeval(a, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &none); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- Send(a, text, -1) }()
	for range sent { // the last one failed, and one more comes
		if n, _, err := Receive(b, text); n != len(text) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
