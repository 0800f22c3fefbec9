package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	outfile "unspool/capture/output"
	"unspool/capture/recorded"
	"unspool/capture/rights/opener"
	"unspool/capture/rights/sandbox"
	"unspool/capture/symbols/debuginfod"
)

// What strangers have written is read by a process without rights: recordings, files of images, debug files,
// answers of servers. It is confined when the command line is known and the places of the outputs are found,
// before anything is opened. A second process makes the outputs, and opens what names of generated code are
// in, which belongs to the recorded processes' users. Where file systems with servers are mounted, a third
// one opens all other files: this one could not end while it waits for a server that does not answer.

// A reading is what a process that reads still needs when it is confined.
type reading struct {
	outputs  []*outfile.Place // nil ones are left out
	folders  []string         // temporary ones, which are removed at the end if they are empty
	names    *nameFlags
	inputs   []*string // paths of recordings
	serves   bool      // over a socket that listens already
	terminal bool      // it takes keys from a terminal
	programs []string  // that it runs
	verbose  bool      // what is in force is said
	after    bool      // a recording, of which that was said before
}

// confineReading gives up the rights of this process, unless the user does not want that. Files are opened in
// the user's own name from then on. The result has to be closed.
func (f *sandboxFlags) confineReading(r reading) (c *confinement, err error) {
	c = &confinement{}
	if c.files, err = opener.StartFiles(f.confines()); err != nil {
		return nil, err
	}
	r.names.opener = c.files
	if !f.confines() {
		if r.verbose && !r.after {
			say("%s", c)
		}
		return c, nil
	}
	if c.client, err = opener.Start(); err != nil {
		c.close()
		return nil, err
	}
	if err := c.giveUp(&r); err != nil {
		c.close()
		return nil, err
	}
	if r.verbose || len(c.report.Missing) > 0 {
		when := ""
		if r.after {
			when = "afterwards "
		}
		say("%s%s", when, c)
	}
	return c, nil
}

// giveUp leaves to the opener what takes rights, and confines this process.
func (c *confinement) giveUp(r *reading) (err error) {
	// First what this process does itself: the opener is starting.
	if err := errors.Join(c.openKernel(), recorded.Prepare()); err != nil {
		return err
	}
	for _, place := range r.outputs {
		if err := place.HandOver(c.client.GrantOutput); err != nil {
			return err
		}
	}
	folders, err := c.grantFolders(r)
	if err != nil {
		return err
	}
	unfiltered := c.client.SealForNames()
	if err := sandbox.BecomeUser(); err != nil {
		return err
	}
	if c.folder != "" {
		if err := os.Setenv("TMPDIR", c.folder); err != nil {
			return err
		}
	}
	cache, fetches := debuginfod.Environment()
	if fetches {
		_ = os.MkdirAll(cache.Cache, 0o700) // in the user's name; that it fails is said when something is fetched
		folders = append(folders, cache.Cache)
	}
	r.names.confined = c
	paths, err := r.openElsewhere()
	if err != nil {
		return err
	}
	c.report = sandbox.ConfineReader(sandbox.Reading{
		Folders: folders, Paths: paths, Fetches: fetches, Serves: r.serves, Terminal: r.terminal,
		Programs: r.programs,
	})
	c.lacks(unfiltered)
	return nil
}

// grantFolders gives the temporary folders to who reads, and leaves it to the opener to remove them. Many
// commands need none: that there can be no folder is said when a file is made in it.
func (c *confinement) grantFolders(r *reading) (folders []string, err error) {
	folders = slices.Clone(r.folders)
	if folder, err := os.MkdirTemp("", "unspool-"); err == nil {
		c.folder = folder
		folders = append(folders, folder)
	}
	for _, folder := range folders {
		err := c.client.GrantFolder(folder)
		if err == nil {
			err = sandbox.GiveFolder(folder, r.serves)
		}
		if err != nil {
			return nil, err
		}
	}
	return folders, nil
}

// openElsewhere opens what the user names by the root of another process (/proc/PID/root), which a process
// under Landlock cannot enter, and replaces it by a path of the descriptor.
func (r *reading) openElsewhere() (paths []string, err error) {
	named := append([]*string{&r.names.symfs, &r.names.cache}, r.inputs...)
	for _, path := range named {
		if clean := filepath.Clean(*path); !strings.HasPrefix(clean, "/proc/") || ownDescriptor(clean) {
			continue
		}
		fd, err := unix.Open(*path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: *path, Err: err}
		}
		*path = fmt.Sprintf("/proc/self/fd/%d", fd)
		paths = append(paths, *path)
	}
	return paths, nil
}

// ownDescriptor reports whether a path is that of a descriptor of this process.
func ownDescriptor(path string) bool { return strings.HasPrefix(path, "/proc/self/fd/") }

// openKernel opens the lists of the kernel's functions and modules: they have addresses only for who opens
// them with the right to see these, which is one of the capabilities that a recording has.
func (c *confinement) openKernel() error {
	c.kernel = make(map[string]*os.File)
	return raised(func() error {
		for _, path := range []string{"/proc/kallsyms", "/proc/modules"} {
			if file, err := os.Open(path); err == nil {
				c.kernel[path] = file
			}
		}
		return nil
	})
}

// openKernel opens a list of the kernel's functions or modules, with the rights that this process began with.
func (f *nameFlags) openKernel(path string) (*os.File, error) {
	if f.confined == nil {
		return os.Open(path)
	}
	return f.confined.kernelFile(path)
}

// kernelFile opens such a list, from its beginning.
func (c *confinement) kernelFile(path string) (*os.File, error) {
	file := c.kernel[path]
	if file == nil {
		return os.Open(path)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	again := os.NewFile(uintptr(fd), path)
	_, err = again.Seek(0, io.SeekStart)
	return again, err
}
