package session

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/counts"
	"unspool/perfring"
	testlane "unspool/testdata/lane"
	"unspool/unwind/image/fusetest"
)

// mapped returns zeros that are read by their address: a variable may be on the stack of its goroutine, which moves.
func mapped(t *testing.T, words int) []uint64 {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, 8*words, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	return unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), words)
}

// A walk does not wait for memory that is locked, and others are read on.
func TestMemoryThatIsLocked(t *testing.T) {
	t.Parallel()
	pid, page, _ := fusetest.Lock(t)
	self := uint32(os.Getpid())
	s := New(Config{Format: new(perfring.SampleFormat), Live: true})
	word := mapped(t, 1)
	word[0] = 4711
	at, buf := uint64(uintptr(unsafe.Pointer(&word[0]))), make([]byte, 8)
	for range 2 * maxHung {
		if n := s.config.Processes.ReadMemory(pid, buf, page); n != 0 {
			t.Fatalf("%d bytes of memory that is locked", n)
		}
	}
	// On a busy machine, a read may take longer than is waited for.
	if !testlane.Soon(func() bool {
		return s.config.Processes.ReadMemory(self, buf, at) == 8 && binary.LittleEndian.Uint64(buf) == word[0]
	}) {
		t.Error("another process is not read")
	}
}

// Where the memory of as many processes hangs as may, no other process is read, and the user is told, once.
func TestMemoryOfManyThatIsLocked(t *testing.T) {
	t.Parallel()
	s := New(Config{Format: new(perfring.SampleFormat), Live: true})
	word := mapped(t, 1)
	at, buf := uint64(uintptr(unsafe.Pointer(&word[0]))), make([]byte, 8)
	told := func() string {
		var out strings.Builder
		counts.WriteFiles(&out, s.Trouble())
		return out.String()
	}
	for range maxHung {
		hanging, page, _ := fusetest.Lock(t)
		s.config.Processes.ReadMemory(hanging, buf, page)
		if text := told(); text != "" {
			t.Errorf("said before another one is read: %q", text)
		}
	}
	for range 2 {
		if got := s.config.Processes.ReadMemory(uint32(os.Getpid()), buf, at); got != 0 {
			t.Errorf("%d bytes though %d processes hang", got, maxHung)
		}
	}
	if text := told(); strings.Count(text, "memory of 8 processes: reads of it hang") != 1 {
		t.Errorf("said: %q", text)
	}
}
