package vdso

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A process has the vDSO of its own mode only, so that of 32-bit processes is read by a 32-bit process: it
// runs a program of 135 bytes that finds the address of its vDSO in the auxiliary vector on its stack
// (AT_SYSINFO_EHDR, getauxval(3)) and writes the bytes there to its standard output.

var own32 struct {
	sync.Mutex
	asked bool
	image []byte
	err   error
}

// Own32 returns the vDSO of the 32-bit processes of this kernel, and perhaps bytes that are mapped behind
// it. It must not be changed. It is read once. A kernel that does not run 32-bit programs has none.
func Own32() ([]byte, error) {
	own32.Lock()
	defer own32.Unlock()
	if !own32.asked {
		own32.asked = true
		own32.image, own32.err = ask32()
	}
	return own32.image, own32.err
}

func ask32() ([]byte, error) {
	fd, err := unix.MemfdCreate("unspool-vdso", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("unspool-vdso", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("[vdso] of 32-bit processes: memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "unspool-vdso")
	defer file.Close()
	if _, err := file.Write(program32()); err != nil {
		return nil, fmt.Errorf("[vdso] of 32-bit processes: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", fd))
	cmd.Env, cmd.Dir = []string{}, "/"
	var image bytes.Buffer
	cmd.Stdout = &image
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("[vdso] of 32-bit processes: %w", err)
	}
	if image.Len() == 0 {
		return nil, errors.New("[vdso]: not mapped in 32-bit processes")
	}
	return image.Bytes(), nil
}

// base is the address of the program, which linkers use as well.
const base = 0x08048000

// program32 is the program as an ELF file: header, one program header, code (System V ABI, figures 4-3 and
// 5-1; Intel386 supplement).
func program32() []byte {
	const headers = 52 + 32
	le := binary.LittleEndian
	b := []byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, 3) // EM_386
	// The version, the entry point, the offsets of program headers and section headers, and the flags.
	for _, word := range []uint32{1, base + headers, 52, 0, 0} {
		b = le.AppendUint32(b, word)
	}
	for _, half := range []uint16{52, 32, 1, 40, 0, 0} { // sizes and numbers of the headers
		b = le.AppendUint16(b, half)
	}
	size := uint32(headers + len(code32))
	for _, word := range []uint32{1, 0, base, base, size, size, 5, 4096} { // PT_LOAD, read and execute
		b = le.AppendUint32(b, word)
	}
	return append(b, code32...)
}

// code32 is:
//
//	     pop %eax                    # argc
//	     lea 4(%esp,%eax,4), %esi    # the environment is behind argv
//	env: lodsl; test %eax, %eax; jnz env
//	aux: lodsl; test %eax, %eax; jz exit
//	     mov %eax, %edi; lodsl; cmp $33, %edi; jne aux # AT_SYSINFO_EHDR
//	     mov %eax, %ecx; mov $4, %eax; mov $1, %ebx; mov $65536, %edx; int $0x80 # write
//	exit: mov $1, %eax; xor %ebx, %ebx; int $0x80
var code32 = []byte{
	0x58, 0x8d, 0x74, 0x84, 0x04, 0xad, 0x85, 0xc0, 0x75, 0xfb, 0xad, 0x85,
	0xc0, 0x74, 0x1b, 0x89, 0xc7, 0xad, 0x83, 0xff, 0x21, 0x75, 0xf3, 0x89,
	0xc1, 0xb8, 0x04, 0x00, 0x00, 0x00, 0xbb, 0x01, 0x00, 0x00, 0x00, 0xba,
	0x00, 0x00, 0x01, 0x00, 0xcd, 0x80, 0xb8, 0x01, 0x00, 0x00, 0x00, 0x31,
	0xdb, 0xcd, 0x80,
}
