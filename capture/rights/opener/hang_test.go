package opener

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/passing"
	"unspool/testdata/lane"
	"unspool/unwind/image/fusetest"
)

// showPage is a file system with one file of a page.
func showPage(t *testing.T) (server *fusetest.Mount, path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page"), append([]byte("\x7fELF"), make([]byte, 4092)...),
		0o644); err != nil {
		t.Fatal(err)
	}
	server = fusetest.Show(t, dir)
	return server, filepath.Join(server.Dir, "page")
}

// mapHanging maps a page of a file whose server does not answer before it is told to.
func mapHanging(t *testing.T) (page []byte, answer func()) {
	t.Helper()
	server, path := showPage(t)
	server.Be(t, fusetest.HangRead)
	answer = func() { server.Be(t, fusetest.Answer) }
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	page, err = unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Skip("skipped for want of a file system that maps: ", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	return page, answer
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Memory of a file is not read where the process does not have it: its server is not asked, and nobody waits.
func TestMemoryOfAFileThatHangs(t *testing.T) {
	t.Parallel()
	page, answer := mapHanging(t)
	defer answer() // before what is cleaned up, some of which waits for it
	c := sealed(t)
	c.wait.one = time.Minute
	self, at := uint32(os.Getpid()), addressOf(page)
	a, err := c.askSoon(request{op: readMemory, pid: self, start: at, end: at + 8})
	if err != nil || len(a.bytes) > 0 {
		t.Errorf("%q, %v", a.bytes, err)
	}
	answer()
	if string(page[:4]) != "\x7fELF" {
		t.Fatal("it is another page")
	}
	if a, err = c.askSoon(request{op: readMemory, pid: self, start: at, end: at + 8}); string(a.bytes[:4]) != "\x7fELF" {
		t.Errorf("once the process has it: %q, %v", a.bytes, err)
	}
}

// A read of memory that hangs ends after a bounded time. Its process is not read again until it has ended; others
// are.
func TestMemoryThatHangs(t *testing.T) {
	t.Parallel()
	pid, at, unlock := fusetest.Lock(t)
	c := sealed(t)
	before := c.wait.credit.Has()
	c.rest.one = 20 * time.Millisecond
	buf := make([]byte, 8)
	if n := c.Aside().ReadMemory(pid, buf, at); n != 0 {
		t.Fatalf("%d bytes of memory that is locked", n)
	}
	if has := c.wait.credit.Has(); has != before {
		t.Errorf("%v for other reads are left of %v", has, before)
	}
	c.wait.one = time.Minute
	if _, err := c.askSoon(request{op: readMemory, pid: pid, start: at, end: at + 8}); !errors.Is(err,
		ErrLate) {
		t.Errorf("asked again: %v", err)
	}
	if all, err := c.Numbers(0); err != nil || len(all) == 0 {
		t.Errorf("others: %v", err)
	}
	unlock()
	lane.Eventually(t, "the process to be asked again after its answer has come", func() bool {
		return c.ReadMemory(pid, buf, at) == len(buf) && binary.NativeEndian.Uint64(buf) == at
	})
}

// A file that hangs delays only the caller that opens it, until the client is closed.
func TestFileThatHangs(t *testing.T) {
	t.Parallel()
	for _, mode := range []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead} {
		server, path := showPage(t)
		server.Be(t, mode)
		c, err := Start()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Seal(true); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.OpenPath(0, path, 0, 0)
			ended <- err
		}()
		server.AwaitHeld(t)
		if file, err := c.OpenPath(0, "/proc/self/exe", 0, 0); err != nil {
			t.Errorf("%s: another file: %v", mode, err)
		} else {
			file.Close()
		}
		select {
		case err := <-ended:
			t.Errorf("%s: it did not hang: %v", mode, err)
		default:
		}
		c.Close()
		if err := <-ended; err == nil {
			t.Errorf("%s: a file from an opener that has ended", mode)
		}
		server.Be(t, fusetest.Answer)
		c.process.Wait()
	}
}

func TestAnswerWait(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	p := newAnswerWait()
	for range 40 { // processes that hang, before the rings have to be drained
		p.take(p.limit(now))
	}
	if l := p.limit(now); l != leastWait {
		t.Errorf("%v are waited without credit", l)
	}
	p.take(ordinary)
	now = now.Add(200 * time.Millisecond)
	if l := p.limit(now); l != 50*time.Millisecond {
		t.Errorf("%v are waited after 200 ms", l)
	}
	now = now.Add(time.Hour)
	if l := p.limit(now); l != mostForOne {
		t.Errorf("%v are waited after an hour", l)
	}
	p.take(time.Minute)
	if l := p.limit(now); l != leastWait {
		t.Errorf("%v are waited after a minute's wait", l)
	}
}

func boundedSocket(t *testing.T) (s *socket, theirs int) {
	t.Helper()
	ours, theirs, err := passing.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	if s, err = newSocket(ours, true); err != nil {
		t.Fatal(err)
	}
	return s, theirs
}

// An answer is waited for until its time is over, with Go's scheduler or without it, and received later.
func TestAnswerOfALine(t *testing.T) {
	for _, c := range []struct {
		name         string
		after, limit time.Duration
		comes        bool // before the limit, or after it
	}{
		{"there already", 0, time.Minute, true},
		{"without the scheduler", soon / 4, time.Minute, true},
		{"with it", 10 * soon, time.Minute, true},
		{"after a round", roundTime + 10*soon, time.Minute, true},
		{"late", 0, leastWait, false},
		{"late for little time", 0, soon / 4, false},
	} {
		s, theirs := boundedSocket(t)
		l, other := &line{Conn: s}, os.NewFile(uintptr(theirs), "line")
		send := func() { _, _ = other.Write((&answer{value: 7, fd: -1}).append(nil)) }
		switch {
		case !c.comes:
		case c.after == 0:
			send()
		default:
			time.AfterFunc(c.after, send)
		}
		in := &incoming{}
		a, err := l.receive(in, c.limit)
		if came := err == nil && a.value == 7; came != c.comes || !c.comes && err != errWaiting {
			t.Errorf("%s: answer %d, %v", c.name, a.value, err)
		}
		if !c.comes {
			if in.waited != c.limit {
				t.Errorf("%s: waited %v of %v", c.name, in.waited, c.limit)
			}
			send()
			if a, err = l.receive(in, time.Minute); err != nil || a.value != 7 {
				t.Errorf("%s: answer %d, %v afterwards", c.name, a.value, err)
			}
		}
		other.Close()
		l.Close()
	}
}

// An answer is waited for while the machine gives this process no CPU: that time is not the opener's.
func TestAnswerAfterAPause(t *testing.T) {
	const pause = 600 * time.Millisecond
	s, theirs := boundedSocket(t)
	l, other := &line{Conn: s}, os.NewFile(uintptr(theirs), "line")
	defer func() { l.Close(); other.Close() }()
	late := exec.Command("sh", "-c", `kill -STOP $PPID; sleep $0; kill -CONT $PPID; cat >&3`,
		fmt.Sprint(pause.Seconds()))
	late.Stdin = bytes.NewReader((&answer{value: 7, fd: -1}).append(nil))
	late.ExtraFiles = []*os.File{other}
	began := time.Now()
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	defer late.Wait()
	in := &incoming{}
	if a, err := l.receive(in, time.Minute); err != nil || a.value != 7 {
		t.Errorf("answer %d, %v", a.value, err)
	}
	// However long a pause is, it counts as the one round that was under way.
	if took := time.Since(began); in.waited > took-pause+roundTime {
		t.Errorf("%v of %v count, with a pause of %v", in.waited, took, pause)
	}
}
