package opener

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/vmas/process"
)

// Files opens and reads files by their paths, for who looks names up: by a process of its own, as this one
// could not even end while it waits for a file system whose server does not answer.
type Files struct {
	inTime
	served []string // where file systems with a server are mounted
	folder string   // the current one, to which paths may be relative, "" for none: the other process is in /
}

var (
	_ process.FileOpener = (*Files)(nil)
	_ process.FileReader = (*Files)(nil)
)

// StartFiles starts a process with the rights of this one, or if it will be confined, with those that it has
// then (see [sandbox.BecomeUser]). The result is nil if no file system is mounted that has a server.
func StartFiles(confined bool) (*Files, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	served := servedMounts(string(mounts))
	if err != nil || len(served) == 0 {
		return nil, nil
	}
	client, err := Start()
	if err != nil {
		return nil, err
	}
	r := request{op: seal, start: forFiles}
	if confined {
		r.end = confinedToo
	}
	if _, err := client.askGranted(r, -1); err != nil {
		client.Close()
		return nil, err
	}
	folder, _ := os.Getwd() // removed: none
	return &Files{newInTime(client), served, folder}, nil
}

// Close ends the process that opens files, and does not wait for that.
func (f *Files) Close() error { return f.client.Close() }

// OpenRegular is for [process.FileOpener].
func (f *Files) OpenRegular(path string) (*process.OpenFile, error) {
	if isOwn(path) {
		return process.Here{}.OpenRegular(path)
	}
	path, err := f.absolute(path)
	if err != nil {
		return nil, err
	}
	return f.open(request{op: openPath, text: []byte(path)}, path)
}

// OpenWithin is for [process.FileOpener].
func (f *Files) OpenWithin(root, name string) (*process.OpenFile, error) {
	if isOwn(root + name) {
		return process.Here{}.OpenWithin(root, name)
	}
	root, err := f.absolute(root)
	if err != nil {
		return nil, err
	}
	return f.open(request{op: openWithin, text: []byte(root + "\x00" + name)}, path.Join(root, name))
}

// absolute is a path for the process that opens files. It is not made shorter: a link may be before a "..".
func (f *Files) absolute(name string) (string, error) {
	switch {
	case path.IsAbs(name):
		return name, nil
	case f.folder == "":
		return "", &os.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	}
	return f.folder + "/" + name, nil
}

// isOwn reports whether a path leads to what this process has open.
func isOwn(path string) bool { return strings.HasPrefix(path, "/proc/self/") }

func (f *Files) open(r request, path string) (*process.OpenFile, error) {
	a, err := f.ask(f.place(path), &r, -1)
	if err != nil {
		return nil, err
	}
	return a.file(path, f.readAt)
}

// ReadFile is for [process.FileReader].
func (f *Files) ReadFile(_ uint32, file *os.File, p []byte, off int64) (n int, err error) {
	return f.readAt(file, p, off)
}

func (f *Files) readAt(file *os.File, p []byte, off int64) (n int, err error) {
	at := f.place(file.Name())
	return readParts(p, off, func(r request) (answer, error) { return f.ask(at, &r, int(file.Fd())) })
}

// place is what is not asked any more if a path is not answered for: the file system, if the path shows that
// a server has it, or else the directory, from which a link may lead to a server.
func (f *Files) place(name string) (p place) {
	name = path.Clean(name)
	for _, mount := range f.served {
		below := name == mount || strings.HasPrefix(name, strings.TrimRight(mount, "/")+"/")
		if below && len(mount) > len(p.path) {
			p = place{mount, true}
		}
	}
	if !p.served {
		p.path = path.Dir(name)
	}
	return p
}
