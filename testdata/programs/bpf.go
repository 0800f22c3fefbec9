package programs

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NeedBPF skips the test where [LoadBPF] cannot do its work.
func NeedBPF(t testing.TB) {
	t.Helper()
	if err := LoadBPF(); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skipf("load a BPF program: %v", err)
	}
}

// LoadBPF loads a program of the kernel's virtual machine, and drops it.
func LoadBPF() error {
	program := []uint64{0xb7, 0x95} // r0 = 0; exit
	license := []byte("GPL\x00")
	attr := struct { // union bpf_attr (linux/bpf.h), for BPF_PROG_LOAD
		kind, count    uint32
		insns, license unsafe.Pointer
		rest           [112]byte
	}{kind: 1, count: uint32(len(program)), insns: unsafe.Pointer(&program[0]),
		license: unsafe.Pointer(&license[0])}
	const progLoad = 5
	for {
		fd, _, errno := unix.Syscall(unix.SYS_BPF, progLoad, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		switch errno {
		case 0:
			return unix.Close(int(fd))
		case unix.EAGAIN: // a signal, as Go sends them to its threads
		default:
			return errno
		}
	}
}
