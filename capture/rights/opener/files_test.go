package opener

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/lane"
	"unspool/unwind/image/fusetest"
	"unspool/vmas/process"
)

// openFiles starts a process that opens files, where one of them is on a server's file system.
func openFiles(t *testing.T, confined bool) (f *Files, server *fusetest.Mount) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		content := bytes.Repeat([]byte(name), mostMemory)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server = fusetest.Show(t, dir)
	f, err := StartFiles(confined)
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	t.Cleanup(func() { f.Close(); f.client.process.Wait() })
	return f, server
}

// Files of servers and of this machine are opened and read. This process has no descriptor of the former that
// it could wait for.
func TestFilesByTheirPaths(t *testing.T) {
	t.Parallel()
	for name, confined := range map[string]bool{"confined": true, "unconfined": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := openFiles(t, confined)
			file, err := f.OpenRegular(filepath.Join(server.Dir, "one"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if n, err := file.File.ReadAt(make([]byte, 4), 0); n != 0 || !errors.Is(err, unix.EBADF) {
				t.Errorf("this process reads %d bytes, %v", n, err)
			}
			buf := make([]byte, 2*mostMemory)
			if n, err := file.ReadAt(buf, 2*mostMemory-1); n != mostMemory+1 ||
				!bytes.HasSuffix(buf[:n], []byte("oneone")) {
				t.Errorf("%d bytes at the end, %v", n, err)
			}
			local, err := f.OpenWithin("/proc/self/root", "bin/sh")
			if err != nil {
				t.Fatal(err)
			}
			local.Close()
			local, err = f.OpenWithin("/", "/bin/sh")
			if err != nil {
				t.Fatal(err)
			}
			defer local.Close()
			if n, err := local.File.ReadAt(buf[:4], 0); n != 4 || string(buf[:4]) != "\x7fELF" {
				t.Errorf("a file of this machine: %q, %v", buf[:n], err)
			}
			for _, path := range []string{"/nowhere", "/dev/null", "/tmp"} {
				if file, err := f.OpenWithin("/", path); err == nil {
					t.Errorf("%s was opened", path)
					file.Close()
				}
			}
			if _, err := f.client.Text(uint32(os.Getpid()), uint32(os.Getpid()), 0, 0); !errors.Is(err,
				unix.ENOSYS) {
				t.Errorf("a text of a process: %v", err)
			}
		})
	}
}

// Paths may be relative to the folder of who asks, which is not that of who opens.
func TestFilesByRelativePaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("here", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, _ := openFiles(t, true)
	for way, open := range map[string]func() (*process.OpenFile, error){
		"a path": func() (*process.OpenFile, error) { return f.OpenRegular("here") },
		"a root": func() (*process.OpenFile, error) { return f.OpenWithin("../"+filepath.Base(dir), "/here") },
	} {
		file, err := open()
		if err != nil {
			t.Errorf("%s: %v", way, err)
			continue
		}
		file.Close()
	}
}

// A file whose server does not answer is waited for once, and so is its file system. Everything else is
// there, and the file as well when the server answers.
func TestFilesThatHang(t *testing.T) {
	for _, mode := range []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f, server := openFiles(t, true)
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer)
			read := func(name string) error {
				file, err := f.OpenWithin("/", filepath.Join(server.Dir, name))
				if err != nil {
					return err
				}
				defer file.Close()
				_, err = file.ReadAt(make([]byte, 8), 0)
				return err
			}
			for _, name := range []string{"one", "one", "two", "three"} {
				if err := read(name); !errors.Is(err, errUnanswered) {
					t.Errorf("%s: %v", name, err)
				}
			}
			// What owes an answer keeps its line.
			if n := linesInUse(f.client.files); n != 1 {
				t.Errorf("the server was asked %d times", n)
			}
			if file, err := f.OpenRegular("/bin/sh"); err != nil {
				t.Error(err)
			} else {
				file.Close()
			}
			server.Be(t, fusetest.Answer)
			lane.Eventually(t, "what the server answers", func() bool { return read("one") == nil })
			server.Be(t, mode)
			f.served = nil // so the answer is waited for as long as that of a disk
			interrupted := make(chan struct{})
			f.Until(interrupted)
			ended := make(chan error)
			go func() { ended <- read("two") }()
			server.AwaitHeld(t)
			close(interrupted)
			for _, err := range []error{<-ended, read("two")} {
				if !errors.Is(err, errInterrupted) {
					t.Errorf("interrupted: %v", err)
				}
			}
		})
	}
}

func TestServedMounts(t *testing.T) {
	const text = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
40 22 0:50 / /home/a\040b rw,nosuid shared:7 master:1 - fuse.sshfs a@b:/ rw,user_id=0
41 22 0:51 / /net rw - nfs4 server:/export rw
42 22 0:52 / /sys/fs/fuse/connections rw - fusectl fusectl rw
43 22 0:53 / /ntfs\134disk rw - fuseblk /dev/sdb rw
44 22 0:54 / /cut
`
	want := []string{"/home/a b", "/net", `/ntfs\disk`}
	if got := servedMounts(text); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	f := &Files{served: want}
	for path, want := range map[string]place{
		"/net": {"/net", true}, "/net/a/b": {"/net", true}, "/home/a b/c": {"/home/a b", true},
		"/netx/a": {"/netx", false}, "/net/../usr/a": {"/usr", false},
	} {
		if got := f.place(path); got != want {
			t.Errorf("%s is at %v, not %v", path, got, want)
		}
	}
}

func FuzzServedMounts(f *testing.F) {
	for _, mounts := range inputs.Files(1, 64<<10, "/proc/self/mountinfo") {
		f.Add(mounts)
	}
	f.Add([]byte("40 22 0:50 / /home/a\\040b rw,nosuid shared:7 - fuse.sshfs a@b:/ rw\n"))
	f.Fuzz(inputs.Many(f, func(t *testing.T, text []byte) {
		defer costs.For(len(text)).Check(t)()
		for _, place := range servedMounts(string(text)) {
			if place == "" {
				t.Error("no place")
			}
		}
	}))
}
