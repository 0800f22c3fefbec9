package image

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tables of an image are read where the kernel has them, in a mapping of the file:
// what is never looked at costs nothing. Should the file be cut short meanwhile, whoever
// reads behind its end gets a SIGBUS. The runtime turns that into a panic on a goroutine
// that asks for it, and what reads the tables is guarded: the image is lost, and no more.

// errCut says that a mapped file has lost its end.
var errCut = errors.New("the file was cut short while it was in use")

// mapFile maps the file of the image, if that is possible.
func (im *Image) mapFile() {
	if im.file == nil || im.size <= 0 || int64(int(im.size)) != im.size {
		return
	}
	data, err := unix.Mmap(int(im.file.Fd()), 0, int(im.size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err == nil {
		im.mapped = data
	}
}

// unmap ends the mapping, and all that would read it.
func (im *Image) unmap() {
	im.cfi, im.golang = nil, nil
	if im.mapped != nil {
		unix.Munmap(im.mapped)
		im.mapped = nil
	}
}

// Guard is what reads the tables of an image defers, with the way back to how the runtime
// took faults before:
//
//	defer im.guard(debug.SetPanicOnFault(true), &err)
//
// A fault in the mapping makes the image unreadable, which is the error then.
func (im *Image) Guard(panicked bool, err *error) {
	debug.SetPanicOnFault(panicked)
	p := recover()
	if p == nil {
		return
	}
	fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || len(im.mapped) == 0 || fault.Addr()-uintptr(unsafe.Pointer(&im.mapped[0])) >= uintptr(len(im.mapped)) {
		panic(p)
	}
	im.unmap()
	im.err = fmt.Errorf("%s: %w", im.Path, errCut)
	*err = im.err
	im.store.Report(im.Path, im.err)
}
