package output

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
)

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

func TestDescriptors(t *testing.T) {
	for path, want := range map[string]int{
		"/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/63": 63, "/proc/self/fd/5": 5, "//dev/./fd/1": 1,
		"/dev/stdin": -1, "/dev/fd": -1, "/dev/fd/": -1, "/dev/fd/-1": -1, "/dev/fd/4294967297": -1,
		"/dev/fd/3/out": -1,
		"/dev/fd/+1":    -1, "dev/stdout": -1, "/proc/1/fd/1": -1, "-": -1, "": -1,
	} {
		n, ok := descriptor(path)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%s: %d, want %d", path, n, want)
		}
	}
	for path, want := range map[string]bool{
		"-": true, "/dev/stdout": true, "/dev/fd/1": true, "/dev/stderr": false, "": false,
	} {
		if Stdout(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}

// A stream is written to at its present offset, and the descriptor that was passed to us stays open.
func TestStreams(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("before "); err != nil {
		t.Fatal(err)
	}
	p, err := Find(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil || !p.Stream() {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := p.Create()
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a command would inherit it: %v", err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if err := f.KeepOld(); err != nil {
		t.Error(err)
	}
	if err := f.Keep(); err != nil {
		t.Error(err)
	}
	f.Discard()
	if _, err := file.WriteString(" after"); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(file.Name()); string(b) != "before new after" {
		t.Errorf("%q", b)
	}
	if _, err := p.Create(); err == nil {
		t.Error("a stream is given out twice")
	}
}

func TestStreamsThatAreRefused(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	defer in.Close()
	closed := fmt.Sprintf("/dev/fd/%d", 1<<20)
	for path, says := range map[string]string{
		closed:                             "descriptor 1048576 is not open",
		fmt.Sprintf("/dev/fd/%d", in.Fd()): "open for reading only",
	} {
		if _, err := Find(path); err == nil || !matches(says, err.Error()) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
	}
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "null"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, fifo, "/dev/zero", filepath.Join(dir, "none")} {
		if f, err := openDevice(path, devices["/dev/null"]); err == nil {
			f.Close()
			t.Errorf("%s is taken for /dev/null", path)
		}
	}
	for _, path := range []string{"/dev/zero", "/dev/tty", "/dev/ptmx"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if _, err := Find(path); err == nil || !matches("is a device|is a link", err.Error()) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestStdoutStaysOpen(t *testing.T) {
	p, err := Find("-")
	if err != nil || !p.Stream() || p.Path() != "-" {
		t.Fatal(err)
	}
	f, err := p.Create()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Keep(); err != nil {
		t.Error(err)
	}
	p.Close()
	if _, err := os.Stdout.Stat(); err != nil {
		t.Error(err)
	}
}

func TestNullDevice(t *testing.T) {
	p, err := Find("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := p.Create()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.WriteString(f, "gone"); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := f.Keep(); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat("/dev/null"); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("%v, %v", st, err)
	}
}
