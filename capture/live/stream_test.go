package live

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUntilTold tells of the end in all ways. The eventfd stays as it is: whoever made it waits for it, too.
func TestUntilTold(t *testing.T) {
	type ends struct {
		event          int
		reader, writer *os.File
		cancel         context.CancelFunc
	}
	write := func(e *ends) {
		unix.Write(e.event, binary.NativeEndian.AppendUint64(nil, 1))
	}
	for _, c := range []struct {
		name   string
		file   bool // is written, and no pipe
		before bool // it is told before it is waited for
		tell   func(*ends)
		told   uint64 // what the eventfd has at the end
	}{
		{"eventfd", false, false, write, 1},
		{"eventfd, beside a file", true, false, write, 1},
		{"eventfd, before", false, true, write, 1},
		{"reader", false, false, func(e *ends) { e.reader.Close() }, 0},
		{"reader, before", false, true, func(e *ends) { e.reader.Close() }, 0},
		{"caller", false, false, func(e *ends) { e.cancel() }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(event)
			e := ends{event: event}
			if e.reader, e.writer, err = os.Pipe(); err != nil {
				t.Fatal(err)
			}
			defer e.reader.Close()
			defer e.writer.Close()
			written := e.writer
			if c.file {
				if written, err = os.Create(filepath.Join(t.TempDir(), "written")); err != nil {
					t.Fatal(err)
				}
				defer written.Close()
			}
			ctx, cancel := context.WithCancel(t.Context())
			e.cancel = cancel
			if c.before {
				c.tell(&e)
			}
			ctx, err = UntilTold(ctx, event, int(written.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if !c.before {
				time.Sleep(20 * time.Millisecond) // until it waits
				if ctx.Err() != nil {
					t.Fatal("done before it was told")
				}
				c.tell(&e)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Error("not done")
			}
			flags, err := unix.FcntlInt(uintptr(event), unix.F_GETFL, 0)
			if err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("flags of the eventfd: %#x, %v", flags, err)
			}
			write(&e) // so that reading does not wait
			var b [8]byte
			if _, err := unix.Read(event, b[:]); err != nil || binary.NativeEndian.Uint64(b[:]) != c.told+1 {
				t.Errorf("the eventfd had %d, %v", binary.NativeEndian.Uint64(b[:])-1, err)
			}
		})
	}
	if _, err := UntilTold(t.Context(), 1<<20, -1); err == nil {
		t.Error("a descriptor that is not open is waited for")
	}
}
