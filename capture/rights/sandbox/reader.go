package sandbox

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A Reading says what a process still needs that reads a recording, files and names.
type Reading struct {
	Folders []string // below which it makes, changes and removes files
	Links   bool     // and makes symbolic links there
	// Paths are those of files and folders that are read and may not be below our root. Others need not be
	// named.
	Paths   []string
	Fetches bool // it asks servers
	Serves  bool // it answers over sockets that listen already
	// Terminal means that it changes how its terminal takes keys, and that back.
	Terminal bool
	// Programs are the names of those that it runs, which have the same rights as the process. It gives up
	// less for their sake.
	Programs []string
}

// GiveFolder gives a folder that root has made to who reads for root: to the user who called sudo, or to root
// and, if it is served afterwards as nobody, to nobody, too.
func GiveFolder(path string, serves bool) error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := invoker(os.Getenv)
	switch {
	case err != nil:
		return notGivenUp(err)
	case who.sudo:
		return os.Lchown(path, who.uid, who.gid)
	case serves:
		return errors.Join(os.Lchown(path, 0, nobody), os.Chmod(path, 0o770|fs.ModeSticky))
	}
	return nil
}

// BecomeUser makes a process that root runs for a user, by sudo, one of that user, for good: what is opened
// from then on is opened in the user's name, and HOME is the user's if it was root's. Any other process stays
// what it is. After an error it may be either, and must not go on.
func BecomeUser() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := invoker(os.Getenv)
	if err != nil {
		return notGivenUp(err)
	}
	if !who.sudo {
		return nil
	}
	if root, err := user.LookupId("0"); who.home != "" && err == nil && os.Getenv("HOME") == root.HomeDir {
		if err := os.Setenv("HOME", who.home); err != nil {
			return err
		}
	}
	if err := who.takeOver(); err != nil {
		return notGivenUp(err)
	}
	return nil
}

// notGivenUp is an error that says why this process stays root. It has the text only, without the errno:
// callers would explain an errno as one of perf events.
func notGivenUp(err error) error {
	return fmt.Errorf("root's privileges cannot be given up: %s (--no-sandbox keeps them)", err.Error())
}

// ReadsAs is the user who called sudo, if this process reads in that user's name; false otherwise.
func ReadsAs() (uid int, ok bool) {
	who, err := invoker(os.Getenv)
	uid = os.Geteuid()
	return uid, err == nil && uid != 0 && who.sudo && who.uid == uid
}

// ConfineReader leaves this process only what reading takes: it can open files for reading, and write only
// where r says so; it can start, signal or connect to nothing but what r says. Root, who is not there for
// somebody else (see [BecomeUser]), stays root, as its own files have to be read, but has no capability
// except to read files of others.
func ConfineReader(r Reading) *Report {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	report := &Report{}
	report.try("no new privileges", noNewPrivileges())
	report.try("Landlock", landlock(r.files(), r.Fetches))
	if os.Geteuid() == 0 {
		kept := readerCapabilities
		if r.Serves {
			kept |= mask(unix.CAP_SETUID, unix.CAP_SETGID) // for DropRoot
		}
		report.try("no capabilities but to read files", keep(kept))
	} else {
		report.try(fmt.Sprintf("uid %d", os.Getuid()), nil)
		report.try("no capabilities", keep(0))
	}
	report.try("not traceable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	report.try("memory limit", limitMemory())
	report.try("seccomp", install(r.filter(os.Getpid())))
	return report
}

// readerCapabilities are those of root that remain for reading.
var readerCapabilities = mask(unix.CAP_DAC_READ_SEARCH)

// files are what Landlock leaves.
func (r *Reading) files() []beneath {
	all := []beneath{{"/", toRead}, {os.DevNull, toFill}}
	for _, path := range r.Paths {
		all = append(all, beneath{path, toRead})
	}
	write := uint64(toWrite)
	if r.Links {
		write |= unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	}
	for _, folder := range r.Folders {
		all = append(all, beneath{folder, write})
	}
	for _, name := range r.Programs {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		all = append(all, beneath{path, toRun})
		if loader := interpreter(path); loader != "" {
			all = append(all, beneath{loader, toRun})
		}
	}
	return all
}

// interpreter is the loader that a program names (elf(5), PT_INTERP), "" for none.
func interpreter(program string) string {
	file, err := elf.Open(program)
	if err != nil {
		return ""
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		path := make([]byte, min(p.Filesz, unix.PathMax))
		n, _ := p.ReadAt(path, 0)
		return strings.TrimRight(string(path[:n]), "\x00")
	}
	return ""
}
