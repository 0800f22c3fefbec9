package opener

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
	"unspool/testdata/lane"
	"unspool/vmas/credit"
	"unspool/vmas/process"
)

// long waits for openers that wait for a CPU, as on a busy machine.
var long = answerWait{credit.New(1, time.Hour), time.Minute}

func startOpener(t *testing.T) *Client {
	t.Helper()
	c, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); c.process.Wait() })
	c.wait = long
	return c
}

// sealed is an opener that is confined.
func sealed(t *testing.T) *Client {
	t.Helper()
	c := startOpener(t)
	if err := c.Seal(true); err != nil {
		t.Fatal("seal: ", err)
	}
	return c
}

// An opener is not woken by what is received from it: no epoll instance waits until there is room in a line,
// which the kernel tells each time that a message has been received.
func TestOpenerWaitsForRequestsAlone(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	if _, err := c.Numbers(0); err != nil {
		t.Fatal(err)
	}
	lane.Eventually(t, "its sockets to be watched", func() bool {
		forRequests, forRoom := watchedSockets(t, c.process.Pid)
		if len(forRoom) > 0 {
			t.Fatal("room is waited for in ", forRoom)
		}
		return len(forRequests) == 4 // for what is granted, for making lines of both kinds, and the line that was made
	})
}

// watchedSockets are those that an epoll instance of a process watches for requests, and those that one watches
// for room.
func watchedSockets(t *testing.T, pid int) (forRequests, forRoom []int) {
	t.Helper()
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range infos {
		info, _ := os.ReadFile(name)
		for line := range strings.Lines(string(info)) {
			var fd int
			var events uint32
			n, _ := fmt.Sscanf(line, "tfd: %d events: %x", &fd, &events)
			name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
			if n < 2 || !strings.HasPrefix(name, "socket:") {
				continue
			}
			if events&unix.EPOLLIN != 0 {
				forRequests = append(forRequests, fd)
			}
			if events&unix.EPOLLOUT != 0 {
				forRoom = append(forRoom, fd)
			}
		}
	}
	return forRequests, forRoom
}

// A confined opener gives what this process can read itself.
func TestOpenerReadsProcesses(t *testing.T) {
	t.Parallel()
	c, direct := sealed(t), process.Direct("/proc")
	self := uint32(os.Getpid())
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	pid := uint32(child.Process.Pid)
	lane.Eventually(t, "a child to sleep", func() bool { // then it does not change any more
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.HasPrefix(text, fmt.Appendf(nil, "%d ", unix.SYS_CLOCK_NANOSLEEP))
	})
	for _, name := range []process.Text{process.Maps, process.Syscall, process.Mounts, process.MountInfo,
		process.Cmdline} {
		all := func(from process.Access) []byte {
			text, err := from.Text(pid, pid, name, 0)
			if err != nil {
				t.Fatal(name, err)
			}
			defer text.Close()
			b, err := io.ReadAll(text)
			if err != nil {
				t.Error(err)
			}
			return b
		}
		var got, want []byte
		if !lane.Soon(func() bool { // other tests mount file systems
			got, want = all(c), all(direct)
			return bytes.Equal(got, want)
		}) || len(want) == 0 {
			t.Errorf("%v: %q, want %q", name, got, want)
		}
	}
	if text, err := c.Text(pid, pid, process.Cmdline, 3); err != nil {
		t.Error(err)
	} else if b, err := io.ReadAll(text); len(b) != 3 || err != nil {
		t.Errorf("more than was asked for: %q, %v", b, err)
	}
	if all, err := c.Numbers(0); err != nil || !slices.Contains(all, pid) {
		t.Errorf("processes: %v, %v", all, err)
	}
	if threads, err := c.Numbers(pid); err != nil || !slices.Equal(threads, []uint32{pid}) {
		t.Errorf("threads: %v, %v", threads, err)
	}
	if uid, err := c.Owner(self); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("owner %d, %v", uid, err)
	}
	if _, err := c.Text(pid, pid, process.Cmdline+1, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("another text: %v", err)
	}
	if _, err := c.Text(1<<30, 1<<30, process.Stat, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i >> 8)
	}
	have := make([]byte, len(big))
	if n := c.ReadMemory(self, have, uint64(uintptr(unsafe.Pointer(&big[0])))); n != len(big) ||
		!bytes.Equal(have, big) {
		t.Errorf("memory: %d bytes", n)
	}
}

// What is handed out is code, by whichever way.
func TestOpenerHandsOutCodeAlone(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	self := uint32(os.Getpid())
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	secret, link, empty := filepath.Join(dir, "secret"), filepath.Join(dir, "link"), filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte("root:$6$…"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	opens := map[string]func(path string) (*os.File, error){
		"path":    func(path string) (*os.File, error) { return c.OpenPath(self, path, 0, 0) },
		"here":    func(path string) (*os.File, error) { return c.OpenPath(0, path, 0, 0) },
		"within":  func(path string) (*os.File, error) { return c.OpenWithin(self, path) },
		"in root": func(path string) (*os.File, error) { return c.OpenWithin(0, path) },
	}
	for how, open := range opens {
		for path, want := range map[string]error{
			exe: nil, link: nil, secret: process.ErrNotCode, dir: nil, "relative": unix.EINVAL, "": unix.EINVAL,
			"/nowhere": unix.ENOENT, "/etc/shadow": process.ErrNotCode, "/dev/zero": nil,
			empty: process.ErrEmpty,
		} {
			if _, err := os.Stat(path); path == "/etc/shadow" && err != nil {
				continue
			}
			file, err := open(path)
			if err == nil {
				flags, _ := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
				if path != exe && path != link || flags&unix.O_ACCMODE != unix.O_RDONLY {
					t.Errorf("%s: %s was handed out, flags %#x", how, path, flags)
				}
				file.Close()
			}
			if (path == exe || path == link) && err != nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %s: %v, want %v", how, path, err, want)
			}
		}
	}
	// A file that is mapped, and no ELF file: as it can be run, or not; by its path, and when it is deleted.
	for _, prot := range []int{unix.PROT_READ, unix.PROT_READ | unix.PROT_EXEC} {
		name := filepath.Join(dir, "mapped")
		if err := os.WriteFile(name, make([]byte, 4096), 0o700); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := unix.Mmap(int(file.Fd()), 0, 4096, prot, unix.MAP_PRIVATE)
		file.Close()
		if err != nil {
			t.Skip("a file system without code: ", err)
		}
		at := uint64(uintptr(unsafe.Pointer(&data[0])))
		for path, want := range map[string]bool{name: prot&unix.PROT_EXEC != 0, secret: false} {
			file, err := c.OpenPath(self, path, at, at+4096)
			if err == nil {
				file.Close()
			}
			if (err == nil) != want {
				t.Errorf("%s, protection %d: %v", path, prot, err)
			}
		}
		os.Remove(name)
		file, target, err := c.OpenMapped(self, at, at+4096)
		if prot&unix.PROT_EXEC != 0 {
			if err != nil || target != name+" (deleted)" {
				t.Errorf("deleted code: %q, %v", target, err)
			}
		} else if !errors.Is(err, process.ErrNotCode) {
			t.Errorf("deleted data: %v", err)
		}
		if err == nil {
			file.Close()
		}
		unix.Munmap(data)
	}
}

// What was not granted is not done, nor granted after the seal.
func TestOpenerDoesWhatWasGranted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place, err := output.Find(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	nothing := sealed(t)
	var attr unix.PerfEventAttr
	if _, err := nothing.OpenEvent(&attr, 0); !errors.Is(err, unix.EACCES) {
		t.Errorf("an event: %v", err)
	}
	if _, _, err := (&Output{client: nothing}).Create(); !errors.Is(err, unix.EACCES) {
		t.Errorf("a file: %v", err)
	}
	if err := place.HandOver(nothing.GrantOutput); err == nil {
		t.Error("an output was granted after the seal")
	}

	c := startOpener(t)
	if err := place.HandOver(c.GrantOutput); err != nil {
		t.Fatal(err)
	}
	if err := c.Seal(true); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		file, err := place.Create()
		if err != nil {
			t.Fatal(err)
		}
		file.WriteString(text)
		if err := file.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	other, err := place.Create()
	if err != nil {
		t.Fatal(err)
	}
	other.Discard()
	if got, err := os.ReadFile(filepath.Join(dir, "stats.json")); string(got) != "second" {
		t.Errorf("the output is %q, %v", got, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	for _, name := range []string{"stats.json", "../x", ""} {
		if err := (&Output{client: c}).Discard(name); !errors.Is(err, unix.EACCES) {
			t.Errorf("discard %q: %v", name, err)
		}
	}
}

// An event that was granted is opened, on any CPU, and no other one.
func TestOpenerOpensEvents(t *testing.T) {
	t.Parallel()
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: 1 << 30}
	attr.Size = uint32(unsafe.Sizeof(attr))
	if fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC); err == nil {
		unix.Close(fd)
	} else {
		t.Skip("skipped for want of the right to open events: ", err)
	}
	c := startOpener(t)
	if err := c.GrantEvents([]unix.PerfEventAttr{attr}); err != nil {
		t.Fatal(err)
	}
	if err := c.Seal(true); err != nil {
		t.Fatal(err)
	}
	fd, err := c.OpenEvent(&attr, 0)
	if err != nil {
		t.Fatal(err)
	}
	var count [8]byte
	if n, err := unix.Read(fd, count[:]); n != len(count) {
		t.Errorf("reading the event: %d, %v", n, err)
	}
	unix.Close(fd)
	attr.Sample++
	if _, err := c.OpenEvent(&attr, 0); !errors.Is(err, unix.EACCES) {
		t.Errorf("another event: %v", err)
	}
}

// Messages that are none end the opener, and nothing else.
func TestOpenerOfAHostileClient(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	for op := range operation(64) { // of every kind, with fields that make no sense
		_, _ = c.askGranted(request{op: op, pid: ^uint32(0), start: ^uint64(0), text: []byte("/")}, -1)
		r := request{op: op, pid: ^uint32(0), tid: ^uint32(0), start: 1, end: 0,
			text: bytes.Repeat([]byte("/.."), 1000)}
		if a, err := c.askFile(r); err == nil && a.fd >= 0 {
			t.Errorf("operation %d gave a file", op)
		}
	}
	if _, err := c.Numbers(0); err != nil {
		t.Error("it has ended: ", err)
	}
	for _, message := range [][]byte{{1}, make([]byte, requestHead-1)} {
		c := sealed(t)
		l, _, err := c.reads.take(forever)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(message, -1); err != nil {
			t.Fatal(err)
		}
		if end, err := c.process.Wait(); err != nil || !end.Success() {
			t.Errorf("it ended with %v, %v", end, err)
		}
		if _, err := c.Numbers(0); err == nil {
			t.Error("an opener that has ended answers")
		}
	}
}

// TestTextsAreReadInPieces reads a long text through the opener, which reads of it little more than is asked for, and
// no more than is received.
func TestTextsAreReadInPieces(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	const pages = 4000
	area, err := unix.Mmap(-1, 0, pages*4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(area) }()
	for i := 0; i < pages; i += 2 { // a line for each page
		if err := unix.Mprotect(area[i*4096:(i+1)*4096], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	self := uint32(os.Getpid())
	read := func(most, until int) (n int, err error) {
		text, err := c.Text(self, self, process.Maps, most)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000)
		for err == nil && n < until {
			var some int
			some, err = text.Read(buf)
			n += some
		}
		if err := text.Close(); err != nil {
			t.Error(err)
		}
		if n, err := text.Read(buf); n > 0 || err == nil {
			t.Errorf("%d bytes of a closed text", n)
		}
		return n, err
	}
	all, err := read(0, 1<<30)
	if err != io.EOF || all < 40*pages {
		t.Fatalf("%d bytes of a text with %d lines: %v", all, pages, err)
	}
	for range 4 * mostReads { // each takes a line until the text has come
		if n, err := read(pieceSize+1, 1<<30); err != io.EOF || n < pieceSize+1 || n > 2*pieceSize {
			t.Fatalf("%d bytes, where %d were asked for: %v", n, pieceSize+1, err)
		}
		if n, err := read(2*pieceSize, 1); err != nil || n != 1000 {
			t.Fatalf("%d bytes at first: %v", n, err)
		}
		for inUse := 1; inUse > 0; { // what was not received is, in the background
			runtime.Gosched()
			inUse = linesInUse(c.reads)
		}
	}
	if all, err := c.Numbers(0); err != nil || len(all) == 0 {
		t.Errorf("others: %v", err)
	}
}

// linesInUse is how many lines have a request under way.
func linesInUse(ls *lines) int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.all) - len(ls.free)
}

// TestLinesAreMadeWhenTheyAreNeeded asks for one thing at a time, which takes one line, and for so many that hang that
// no more lines are made.
func TestLinesAreMadeWhenTheyAreNeeded(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	if n := len(c.files.all) + len(c.reads.all); n != 0 {
		t.Errorf("%d lines before any is needed", n)
	}
	for range 3 {
		if _, err := c.Numbers(0); err != nil {
			t.Fatal(err)
		}
		file, err := c.OpenPath(0, "/proc/self/exe", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	if files, reads := len(c.files.all), len(c.reads.all); files != 1 || reads != 1 {
		t.Errorf("%d lines for files, %d for reads", files, reads)
	}
	for _, kind := range []struct {
		lines *lines
		most  int
	}{{c.files, mostFiles}, {c.reads, mostReads}} {
		for i := range kind.most {
			if _, _, err := kind.lines.take(forever); err != nil {
				t.Fatalf("line %d of %d: %v", i, kind.most, err)
			}
		}
		if _, _, err := kind.lines.take(forever); err != unix.EAGAIN {
			t.Errorf("more than %d lines: %v", kind.most, err)
		}
		kind.lines.most = 1 // as a client that was taken over would ask
		if _, _, err := kind.lines.take(forever); !errors.Is(err, unix.EACCES) {
			t.Errorf("the opener makes more than %d lines: %v", kind.most, err)
		}
		for _, l := range slices.Clone(kind.lines.all) {
			kind.lines.giveBack(l)
		}
	}
	if _, err := c.Numbers(0); err != nil {
		t.Error(err)
	}
}

// TestLineOfAStoppedOpener wants a line of an opener that is stopped, which does not come in time, and is the next one.
func TestLineOfAStoppedOpener(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	if err := c.process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lane.Eventually(t, "the opener to stop", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := bytes.Cut(text, []byte(") "))
		return rest[0] == 'T'
	})
	const one, times = 2 * ordinary, 3
	c.wait = answerWait{credit.New(1<<40, time.Hour), one}
	before := c.wait.credit.Left(time.Now())
	for range times {
		if _, err := c.Numbers(1); !errors.Is(err, ErrLate) {
			t.Errorf("from an opener that is stopped: %v", err)
		}
	}
	if spent := before - c.wait.credit.Has(); spent != times*one {
		t.Errorf("%v of the credit were spent for %d times %v", spent, times, one)
	}
	if err := c.process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.wait.one = time.Minute
	if _, err := c.Numbers(1); err != nil {
		t.Error(err)
	}
	if n := len(c.reads.all); n != 1 {
		t.Errorf("%d lines were made for one", n)
	}
}

// TestLostLines closes lines as soon as they come, as the kernel does where a process has no descriptor to spare: the
// opener goes on, and makes as many others.
func TestLostLines(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	for _, m := range c.makers {
		for range 2 * (mostFiles + mostReads) {
			lane.Eventually(t, "a line", func() bool {
				if err := m.send(&request{op: openLine}, -1); err != nil {
					t.Fatal(err)
				}
				a, err := m.receive(&incoming{file: true}, forever)
				if err != nil {
					t.Fatal(err)
				}
				closeFD(a.fd)
				return a.fd >= 0
			})
		}
	}
	// It refuses more lines than there is room for until it has seen that the last ones are closed.
	lane.Eventually(t, "an answer", func() bool {
		_, err := c.Numbers(0)
		return err == nil
	})
	if err := c.process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the opener has ended: %v", err)
	}
}

// TestLineForWhoIsInAHurry has one goroutine wait for a line for as long as it takes, and another for a moment.
func TestLineForWhoIsInAHurry(t *testing.T) {
	t.Parallel()
	c := sealed(t)
	if err := c.process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m := c.makers[1]
	came := make(chan error)
	go func() {
		line, err := m.connect(forever)
		if err == nil {
			line.Close()
		}
		came <- err
	}()
	lane.Eventually(t, "a line to be asked for", func() bool { return len(m.turn) == 1 })
	if _, err := m.connect(time.Millisecond); err != errLate {
		t.Errorf("who waits for a moment is told %v", err)
	}
	if err := c.process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-came; err != nil {
		t.Error(err)
	}
}
