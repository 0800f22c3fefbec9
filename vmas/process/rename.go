package process

import (
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rename gives this process a name for ps, top and profiles, of which the kernel keeps 15 bytes: one that was started
// as /proc/self/exe is called "exe". It is called by an init function, which runs on the main thread. Threads that are
// there already are renamed, too, where /proc lets the process do that.
func Rename(name string) {
	var comm [16]byte // with a zero at its end
	copy(comm[:15], name)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&comm)), 0, 0, 0) // fails for no name
	others, _ := filepath.Glob("/proc/self/task/*/comm")
	for _, path := range others {
		_ = os.WriteFile(path, []byte(name), 0) // of a program with capabilities, it is root's
	}
}
