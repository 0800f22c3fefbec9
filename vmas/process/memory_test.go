package process

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const access = unix.PROT_READ | unix.PROT_WRITE

var lastTouched byte // so that it is

// mapPages maps pages between others that nobody may touch, and returns where.
func mapPages(t *testing.T, pages, access, flags, fd int) (at uint64) {
	t.Helper()
	size := uintptr(pages+2) * pageSize
	all, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.MunmapPtr(all, size) })
	mapped, err := unix.MmapPtr(fd, 0, unsafe.Add(all, pageSize), size-2*pageSize, access, flags|unix.MAP_FIXED)
	if err != nil {
		t.Skip(err)
	}
	return uint64(uintptr(mapped))
}

// memoryOf opens the memory of a process until the test ends, in both ways.
func memoryOf(t *testing.T, pid int) map[string]*MemoryReader {
	t.Helper()
	all := make(map[string]*MemoryReader)
	for _, how := range []string{"asked for one mapping", "by the list of all"} {
		r, err := Direct("/proc").OpenMemory(uint32(pid))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		r.noQuery = how != "asked for one mapping"
		all[how] = r
	}
	return all
}

// Only memory is read that the process itself may read, that is no device's, and, of a file, that it has already.
func TestMemoryThatIsRead(t *testing.T) {
	const private = unix.MAP_PRIVATE | unix.MAP_ANON
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(2 * pageSize); err != nil {
		t.Fatal(err)
	}
	fd := int(file.Fd())
	null, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	touched := func(at uint64) uint64 {
		lastTouched = *(*byte)(unsafe.Add(unsafe.Pointer(nil), at))
		return at
	}
	const none, page, two = 0, pageSize, 2 * pageSize
	for _, c := range []struct {
		name string
		at   uint64
		want int
	}{
		{"of its own", mapPages(t, 2, access, private, -1), two},
		{"that it may only read", mapPages(t, 2, unix.PROT_READ, private, -1), two},
		{"that it may not touch", mapPages(t, 2, unix.PROT_NONE, private, -1), none},
		{"that it may only write", mapPages(t, 2, unix.PROT_WRITE, private, -1), none},
		{"shared", touched(mapPages(t, 2, access, unix.MAP_SHARED|unix.MAP_ANON, -1)), none},
		{"of a file", mapPages(t, 2, access, unix.MAP_PRIVATE, fd), none},
		{"of a file that it has read", touched(mapPages(t, 1, access, unix.MAP_PRIVATE, fd)), page},
		{"of a file, shared", touched(mapPages(t, 1, access, unix.MAP_SHARED, fd)), none},
		{"code", mapPages(t, 2, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED, fd), none},
		{"code that it has read", touched(mapPages(t, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED, fd)), page},
		{"of a device that is memory", touched(mapPages(t, 1, access, unix.MAP_PRIVATE, int(null.Fd()))), page},
		{"the kernel's code", mappedAs(t, "[vdso]"), page},
		{"the kernel's clock", mappedAs(t, "[vvar]"), none},
		{"not there", 0, none},
		{"of the kernel", 1 << 63, none},
	} {
		for how, memory := range memoryOf(t, os.Getpid()) {
			if n := memory.Read(make([]byte, max(c.want, page)), c.at); n != c.want {
				t.Errorf("%s, %s: %d bytes, want %d", c.name, how, n, c.want)
			}
		}
	}
}

// mappedAs is where a mapping of this process is that has a name.
func mappedAs(t *testing.T, name string) (start uint64) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for q, is := range mappings(bytes.NewReader(maps)) {
		if is == name {
			return q.start
		}
	}
	t.Skipf("there is no %s", name)
	return 0
}

// What is read is what is there: from one page to the next, from one mapping to the next, up to what may not be read.
func TestMemoryIsReadAsFarAsItGoes(t *testing.T) {
	const pages = 9
	at := mapPages(t, pages, access, unix.MAP_PRIVATE|unix.MAP_ANON, -1)
	all := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), at)), pages*pageSize)
	for i := range all {
		all[i] = byte(i * 7 >> 3)
	}
	if err := unix.Mprotect(all[4*pageSize:6*pageSize], unix.PROT_READ); err != nil { // a mapping of its own
		t.Fatal(err)
	}
	for how, memory := range memoryOf(t, os.Getpid()) {
		for _, from := range []int{0, 1, 100, pageSize - 1, 3 * pageSize, 7*pageSize + 8, pages*pageSize - 1} {
			for _, size := range []int{0, 1, pageSize - 100, pageSize, 2*pageSize + 1, 4 * pageSize, pages * pageSize} {
				buf := make([]byte, size)
				want := min(size, len(all)-from)
				if n := memory.Read(buf, at+uint64(from)); n != want || !bytes.Equal(buf[:n], all[from:from+n]) {
					t.Errorf("%s: %d bytes of %d at %d, want %d", how, n, size, from, want)
				}
			}
		}
		if end := memory.MappingEnd(at + pageSize); end != at+4*pageSize {
			t.Errorf("%s: a mapping ends at %#x, want %#x", how, end, at+4*pageSize)
		}
	}
}

// A handler of userfaultfd(2) is not asked for a page that nobody touches.
func TestMemoryOfAUserfaultHandler(t *testing.T) {
	const (
		api      = 0xc018aa3f // UFFDIO_API
		register = 0xc020aa00 // UFFDIO_REGISTER
		zero     = 0xc020aa04 // UFFDIO_ZEROPAGE
		missing  = 1          // UFFDIO_REGISTER_MODE_MISSING
	)
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Skip("skipped for want of userfaultfd(2): ", errno)
	}
	defer unix.Close(int(fd))
	do := func(request uintptr, words ...uint64) unix.Errno {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&words[0])))
		return errno
	}
	at := mapPages(t, 2, access, unix.MAP_PRIVATE|unix.MAP_ANON, -1)
	if e := do(api, 0xaa, 0, 0); e != 0 {
		t.Fatal(e)
	}
	if e := do(register, at, pageSize, missing, 0); e != 0 {
		t.Fatal(e)
	}
	asked := make(chan uint64, 1)
	go func() {
		fault := make([]byte, 32) // struct uffd_msg
		if n, _ := unix.Read(int(fd), fault); n == len(fault) {
			_ = do(zero, at, pageSize, 0, 0)
			asked <- binary.NativeEndian.Uint64(fault[16:])
		}
	}()
	if n := Direct("/proc").ReadMemory(self, make([]byte, 8), at); n != 0 {
		t.Errorf("%d bytes", n)
	}
	if n := Direct("/proc").ReadMemory(self, make([]byte, 2*pageSize), at); n != 0 {
		t.Errorf("%d bytes of both", n)
	}
	if n := Direct("/proc").ReadMemory(self, make([]byte, 8), at+pageSize); n != 8 {
		t.Errorf("%d bytes of the next page", n)
	}
	select {
	case at := <-asked:
		t.Errorf("it is asked for %#x", at)
	default:
	}
	*(*byte)(unsafe.Add(unsafe.Pointer(nil), at)) = 1
	if got := <-asked; got != at {
		t.Errorf("a thread's own fault: %#x", got)
	}
}

// The memory is that of the program that runs in a process, and nothing is kept open of one that has ended.
func TestMemoryOfOneProgramAfterAnother(t *testing.T) {
	shell := exec.Command("/bin/sh", "-c", "read line; exec cat")
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer shell.Wait()
	defer in.Close()
	path := fmt.Sprintf("/proc/%d/maps", shell.Process.Pid)
	stack := func() (at uint64) {
		maps, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for q, name := range mappings(bytes.NewReader(maps)) {
			if name == "[stack]" {
				at = q.end - 8
			}
		}
		return at
	}
	all := memoryOf(t, shell.Process.Pid)
	word := make([]byte, 8)
	for how, memory := range all {
		if n := memory.Read(word, stack()); n != 8 || memory.IsOver() {
			t.Errorf("%s: %d bytes of the shell, over: %v", how, n, memory.IsOver())
		}
	}
	if _, err := in.Write([]byte("\nhere\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "here\n" {
		t.Fatal(line, err)
	}
	for how, memory := range all {
		if !memory.IsOver() {
			t.Errorf("%s: the shell's memory is there still", how)
		}
		if n := memory.Read(word, stack()); n != 8 || memory.IsOver() {
			t.Errorf("%s: %d bytes of cat, over: %v", how, n, memory.IsOver())
		}
	}
	at := stack()
	in.Close()
	if err := shell.Wait(); err != nil {
		t.Fatal(err)
	}
	for how, memory := range all {
		if n := memory.Read(word, at); n != 0 || !memory.IsOver() || memory.mem >= 0 || memory.maps >= 0 {
			t.Errorf("%s: %d bytes of a process that has ended", how, n)
		}
	}
}

// Devices are known by the paths in maps.
func TestIsDevice(t *testing.T) {
	for path, want := range map[string]bool{
		"/dev/mem": true, "/dev/dri/card0": true, "/sys/bus/pci/devices/0000:00:02.0/resource0": true,
		"/proc/bus/pci/00/02.0": true, "anon_inode:kvm-vcpu:0": true, "/dev/zero": false, "/dev/shm/stack": false,
		"/usr/lib/libc.so.6": false, "/home/dev/program": false, "": false, "/memfd:jit (deleted)": false,
	} {
		if IsDevice(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
	// What is neither a path nor known is not read.
	for name, want := range map[string]bool{
		"/usr/lib/libc.so.6": true, "(unreachable)/lib": true, "socket:[1]": false, "/dev/mem": false, "": false,
	} {
		if q := (mappingQuery{access: canRead, inode: 1}); q.mayBeRead(name) != want {
			t.Errorf("the file %q: %v", name, !want)
		}
	}
	for name, want := range map[string]bool{
		"": true, "[heap]": true, "[stack]": true, "[stack:4711]": true, "[anon:jit]": true, "[vdso]": true,
		"[vvar]": false, "[vvar_vclock]": false, "[vsyscall]": false, "[uprobes]": false, "[new]": false,
	} {
		if q := (mappingQuery{access: canRead}); q.mayBeRead(name) != want {
			t.Errorf("memory called %q: %v", name, !want)
		}
	}
}

// Without a query, no more than a bounded part of the list is read.
func TestListOfMappingsIsBounded(t *testing.T) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "%x-%x rw-p 00000000 00:00 0 \n", (2*i+1)<<12, (2*i+2)<<12)
	}
	all := appendReadable(nil, strings.NewReader(text.String()))
	if n := len(all) * len("1000-2000 rw-p 00000000 00:00 0 \n"); n > mostMaps || n < mostMaps/2 {
		t.Errorf("%d mappings", len(all))
	}
	if i := slices.IndexFunc(all, func(m readable) bool { return m.end != m.start+pageSize || m.ofFile }); i >= 0 {
		t.Errorf("mapping %d: %+v", i, all[i])
	}
}
