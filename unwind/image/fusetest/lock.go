package fusetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

// lockVariable is set in a process that locks its memory: a file on the file system.
const lockVariable = "UNSPOOL_FUSETEST_LOCK"

func init() {
	if path := os.Getenv(lockVariable); path != "" {
		runtime.LockOSThread() // the thread whose TID is the PID
		fmt.Println(lock(path))
		os.Exit(1)
	}
}

// Lock starts a process whose memory cannot be read as long as the server leaves a read unanswered: who tries
// waits. It has a page, which begins with its address. unlock has the server answer.
func Lock(t *testing.T) (pid uint32, page uint64, unlock func()) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page"), make([]byte, os.Getpagesize()), 0o644); err != nil {
		t.Fatal(err)
	}
	m := Show(t, dir)
	m.Be(t, HangRead)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), lockVariable+"="+filepath.Join(m.Dir, "page"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := programs.StartTied(t, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Be(t, Answer) // it cannot end before
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var reader int
	if _, err := fmt.Fscanln(out, &page, &reader); err != nil {
		t.Skipf("skipped for want of a file system that maps: %v", err)
	}
	is := cmd.Process.Pid
	for end := time.Now().Add(time.Minute); state(is, is) != "D" || state(is, reader) == "R"; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the process does not lock its memory")
		}
	}
	return uint32(is), page, func() { m.Be(t, Answer) }
}

// lock reads, in one thread, a page of a file by /proc/self/mem: while that waits for the server, no mapping can be
// changed. This one wants to change one: until it has, nobody else may look at memory.
func lock(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	size := os.Getpagesize()
	mapped, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	page, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	address := uintptr(unsafe.Pointer(&page[0]))
	*(*uintptr)(unsafe.Pointer(&page[0])) = address
	memory, err := unix.Open("/proc/self/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	go func() {
		runtime.LockOSThread()
		buf := make([]byte, 8)
		fmt.Println(address, unix.Gettid())
		_, _ = unix.Pread(memory, buf, int64(uintptr(unsafe.Pointer(&mapped[0]))))
	}()
	for { // without memory from the runtime, which may have to map some
		at, _, _ := unix.RawSyscall6(unix.SYS_MMAP, 0, uintptr(size), unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0), 0)
		_, _, _ = unix.RawSyscall(unix.SYS_MUNMAP, at, uintptr(size), 0)
	}
}

// state is R for a thread that runs, and D for one that waits in the kernel and takes no signals (proc_pid_stat(5)).
func state(pid, tid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/stat")
	_, state, _ := bytes.Cut(text, []byte(") "))
	return string(state[:min(1, len(state))])
}
