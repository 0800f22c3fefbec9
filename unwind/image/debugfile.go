package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/rule"
)

// debugInfo is what an image needs to find the .debug_frame that was stripped
// from it, and what was found.
type debugInfo struct {
	pid    uint32         // of the process that mapped the image last: its root may hold the debug file
	link   debugfile.Link // .gnu_debuglink
	vaddr  uint64         // of the first segment
	sought bool
	cfi    *dwarfcfi.Table // nil when there is none
}

// note keeps what leads to the debug file, while the image is open.
func (d *debugInfo) note(r io.ReaderAt, l *elf.Layout) {
	if len(l.Loads) > 0 {
		d.vaddr = l.Loads[0].Vaddr
	}
	e := &l.DebugLink
	if e.Size == 0 || e.Size > debugfile.MaxLink || e.Compressed {
		return
	}
	section := make([]byte, e.Size)
	if n, _ := r.ReadAt(section, int64(e.Offset)); n == len(section) {
		d.link, _ = debugfile.ParseLink(section)
	}
}

// debugRow gives the row for an address that the image's own CFI does not
// cover, from the .debug_frame of its separate debug file. The file is looked
// for at the first such address, and once.
func (im *Image) debugRow(addr uint64, row *dwarfcfi.Row) error {
	d := &im.debug
	if !d.sought {
		d.sought = true
		im.findDebugFrame()
	}
	if d.cfi == nil {
		return dwarfcfi.ErrNoFDE
	}
	return d.cfi.Row(addr, row)
}

func (im *Image) debugFile() (*os.File, error) {
	if o := im.store.offline; o != nil {
		return o.debugFile(im)
	}
	roots := []string{fmt.Sprintf("%s/%d/root", im.store.proc, im.debug.pid), "/"}
	return debugfile.Find(roots, im.Path, im.BuildID, im.debug.link)
}

// findDebugFrame sets im.debug.cfi if there is a debug file with CFI. One
// that is there but cannot be used is named to the store.
func (im *Image) findDebugFrame() {
	file, err := im.debugFile()
	if err == nil {
		defer file.Close()
		if im.debug.cfi, err = im.readDebugFrame(file); err != nil {
			err = fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		im.store.Report(im.Path, err)
	}
}

// readDebugFrame reads .debug_frame; nil when the file has none.
func (im *Image) readDebugFrame(file *os.File) (*dwarfcfi.Table, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	layout, err := elf.ReadLayout(file, info.Size())
	switch {
	case err != nil:
		return nil, err
	case layout.DebugFrame.Size == 0:
		return nil, nil
	case rule.ArchOf(layout.Machine) != im.arch:
		return nil, fmt.Errorf("%v: %w", layout.Machine, errMachine)
	case len(layout.Loads) > 0 && layout.Loads[0].Vaddr != im.debug.vaddr:
		// Prelinking moved the image and left its debug file alone.
		return nil, fmt.Errorf("segments at %#x, in the image at %#x: debug file %w", layout.Loads[0].Vaddr, im.debug.vaddr, debugfile.ErrOther)
	}
	sections, err := dwarfcfi.ReadDebugFrame(file, layout)
	if err != nil {
		return nil, err
	}
	return dwarfcfi.New(sections)
}
