// Package fusetest is a file system whose server stops answering when a test wants it to: what a user's
// FUSE server may do at any time, and a network's file server does when the network fails.
//
// It speaks the kernel's protocol (include/uapi/linux/fuse.h) as far as reading files goes. The server is a
// process of its own, the test's binary started again, which ends with the test: a thread that waits for an
// answer cannot be interrupted, so the process that waits cannot end either.
package fusetest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

const (
	mountVariable = "UNSPOOL_FUSETEST_MOUNT" // set in the server: where it mounts
	filesVariable = "UNSPOOL_FUSETEST_FILES" // the directory whose files it shows
)

func init() {
	if at := os.Getenv(mountVariable); at != "" {
		fmt.Println(serve(at, os.Getenv(filesVariable)))
		os.Exit(1)
	}
}

// A Mount is the file system, mounted at Dir.
type Mount struct {
	Dir     string
	control io.Writer
	answers *bufio.Reader
}

// Show mounts a file system that shows the files of a directory as they are now, until the test ends.
func Show(t *testing.T, files string) *Mount {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped for want of root, who may mount")
	}
	m := &Mount{Dir: t.TempDir()}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), mountVariable+"="+m.Dir, filesVariable+"="+files)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := programs.StartTied(t, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which aborts what waits for it
		_ = cmd.Wait()
		_ = unix.Unmount(m.Dir, unix.MNT_DETACH)
	})
	m.control, m.answers = in, bufio.NewReader(out)
	if line, _ := m.answers.ReadString('\n'); line != "ready\n" {
		t.Skipf("skipped for want of FUSE: %s", line)
	}
	return m
}

// A Mode says what the server leaves unanswered.
type Mode string

const (
	Answer    Mode = "answer"
	HangOpen  Mode = "open"  // to open a file
	HangRead  Mode = "read"  // to read from a file that is opened from now on
	HangClose Mode = "close" // to close such a file
	// HangContents leaves unanswered to read more of such a file than its first bytes.
	HangContents Mode = "contents"
	// HangStat leaves unanswered to say for a third time how large a file is that is looked up from now on: the
	// first two are for who opens it.
	HangStat Mode = "stat"
)

// Be makes the server behave so from now on.
func (m *Mount) Be(t *testing.T, mode Mode) {
	t.Helper()
	if _, err := fmt.Fprintln(m.control, mode); err != nil {
		t.Fatal(err)
	}
	if line, err := m.answers.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
}

// heldNow is what the server is told to say how many requests are unanswered.
const heldNow = "held"

// AwaitHeld waits until the server has left something unanswered.
func (m *Mount) AwaitHeld(t *testing.T) {
	t.Helper()
	lane.Eventually(t, "a request that is not answered", func() bool {
		if _, err := fmt.Fprintln(m.control, heldNow); err != nil {
			t.Fatal(err)
		}
		line, err := m.answers.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		return line != "0\n"
	})
}

// A server answers the kernel's requests.
type server struct {
	fd    int
	names []string
	files [][]byte

	mu    sync.Mutex
	mode  Mode
	held  [][]byte       // requests that were left unanswered
	asked map[uint64]int // how often HangStat has said the size of a file
}

// serve mounts the file system and serves it until it is killed.
func serve(at, files string) error {
	s := &server{mode: Answer, asked: make(map[uint64]int)}
	entries, err := os.ReadDir(files)
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(files, e.Name()))
		if err != nil {
			return err
		}
		s.names, s.files = append(s.names, e.Name()), append(s.files, content)
	}
	if s.fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", s.fd)
	if err := unix.Mount("fusetest", at, "fuse", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return err
	}
	go s.control()
	return s.run()
}

// control takes the test's orders.
func (s *server) control() {
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		s.mu.Lock()
		if in.Text() == heldNow {
			fmt.Println(len(s.held))
			s.mu.Unlock()
			continue
		}
		s.mode = Mode(in.Text())
		held := s.held
		s.held = nil
		s.mu.Unlock()
		for _, request := range held {
			if err := s.take(request); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println("done")
	}
}

// Requests (enum fuse_opcode).
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReleasedir  = 29
	opInterrupt   = 36
	opBatchForget = 42
)

const (
	headerSize = 40 // struct fuse_in_header
	longValid  = 3600
	directIO   = 1 // FOPEN_DIRECT_IO
)

func (s *server) run() error {
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(s.fd, buf)
		switch {
		case err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN:
			continue
		case err != nil:
			return err
		}
		if err := s.take(buf[:n]); err != nil {
			return err
		}
	}
}

// take takes a request.
func (s *server) take(request []byte) error {
	op := binary.LittleEndian.Uint32(request[4:])
	unique := binary.LittleEndian.Uint64(request[8:])
	s.mu.Lock()
	mode := s.mode
	answer, errno, answered := s.answer(op, mode, binary.LittleEndian.Uint64(request[16:]), request[headerSize:])
	if !answered {
		s.held = append(s.held, bytes.Clone(request))
	}
	s.mu.Unlock()
	if !answered || op == opForget || op == opBatchForget || op == opInterrupt {
		return nil
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(answer))) // struct fuse_out_header
	out = binary.LittleEndian.AppendUint32(out, uint32(-int32(errno)))
	out = append(binary.LittleEndian.AppendUint64(out, unique), answer...)
	if _, err := unix.Write(s.fd, out); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

// answer answers a request, unless it is one that the mode leaves unanswered.
func (s *server) answer(op uint32, mode Mode, node uint64, in []byte) (out []byte, errno unix.Errno,
	answered bool) {
	le := binary.LittleEndian
	switch op {
	case opInit: // struct fuse_init_out
		out = le.AppendUint32(le.AppendUint32(nil, 7), 31)
		out = le.AppendUint32(le.AppendUint32(out, 1<<17), 0)
		out = le.AppendUint32(le.AppendUint32(out, 0), 1<<16)
		return append(le.AppendUint32(out, 1), make([]byte, 64-28)...), 0, true
	case opLookup: // struct fuse_entry_out
		for i, name := range s.names {
			if string(in[:len(in)-1]) == name {
				out = le.AppendUint64(le.AppendUint64(nil, uint64(i)+2), 0)
				out = le.AppendUint64(le.AppendUint64(out, longValid), attributesValid(mode))
				return append(le.AppendUint64(out, 0), s.attributes(uint64(i)+2)...), 0, true
			}
		}
		return nil, unix.ENOENT, true
	case opGetattr: // struct fuse_attr_out
		if mode == HangStat {
			s.asked[node]++
		}
		out = le.AppendUint64(le.AppendUint64(nil, attributesValid(mode)), 0)
		return append(out, s.attributes(node)...), 0, mode != HangStat || s.asked[node] <= 2
	case opOpen, opOpendir: // struct fuse_open_out
		flags := uint64(0)
		if mode == HangRead || mode == HangClose || mode == HangContents {
			flags = directIO
		}
		return le.AppendUint64(le.AppendUint64(nil, 0), flags), 0, mode != HangOpen || op == opOpendir
	case opRead: // struct fuse_read_in
		off, size := le.Uint64(in[8:]), uint64(le.Uint32(in[16:]))
		file := s.files[node-2]
		off = min(off, uint64(len(file)))
		const first = 4
		hangs := mode == HangRead || mode == HangContents && (off > 0 || size > first)
		return file[off:][:min(size, uint64(len(file))-off)], 0, !hangs
	case opFlush:
		return nil, 0, mode != HangClose
	case opRelease, opReleasedir:
		return nil, 0, true
	}
	return nil, unix.ENOSYS, true
}

// attributesValid is for how many seconds the kernel does not ask for attributes again.
func attributesValid(mode Mode) uint64 {
	if mode == HangStat {
		return 0
	}
	return longValid
}

// attributes is a struct fuse_attr.
func (s *server) attributes(node uint64) []byte {
	le := binary.LittleEndian
	size, mode, links := uint64(0), uint32(unix.S_IFDIR|0o755), uint32(2)
	if node > 1 {
		size, mode, links = uint64(len(s.files[node-2])), unix.S_IFREG|0o755, 1
	}
	b := le.AppendUint64(le.AppendUint64(nil, node), size)
	b = append(b, make([]byte, 4*8+3*4)...) // blocks and times
	for _, v := range []uint32{mode, links, 0, 0, 0, 4096, 0} {
		b = le.AppendUint32(b, v)
	}
	return b
}

// Program shows a program on a file system whose server can hang.
func Program(t *testing.T) (server *Mount, path string) {
	t.Helper()
	program, err := os.ReadFile(programs.Build(t, "plain", "-static"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	server = Show(t, dir)
	return server, filepath.Join(server.Dir, "program")
}
