package image

import (
	"errors"
	"fmt"
	"io/fs"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/rule"
	"unspool/vmas/process"
)

// debugInfo is the .debug_frame that was stripped from an image.
type debugInfo struct {
	pid    uint32 // of the process that mapped the image last: its root may hold the debug file
	sought bool
	cfi    *dwarfcfi.Table // nil when there is none, or not yet
	share  share           // of memory

	seeking *task[debugFrame] // nil unless it is under way
	late    lateness
}

// A debugFrame is the result of looking for the debug file of an image.
type debugFrame struct {
	cfi   *dwarfcfi.Table
	share share
	err   error // about a file that is there and cannot be used
}

// A debugWanted says which debug file is looked for.
type debugWanted struct {
	pid     uint32
	path    string // of the image
	buildID []byte
	link    debugfile.Link
	arch    *rule.Arch
	vaddr   uint64 // of the first segment
}

// debugRow gives the row for an address that the image's own CFI does not cover, from the .debug_frame of its
// separate debug file. The file is looked for once, at the first such address. There are other ways to a rule
// without it, so it may come late; then the rules that were found without it are dropped.
func (im *Image) debugRow(addr uint64, row *dwarfcfi.Row) error {
	d := &im.debug
	if !d.sought {
		d.sought = true
		im.seekDebugFrame()
	}
	if d.cfi == nil {
		return dwarfcfi.ErrNoFDE
	}
	return d.cfi.Row(addr, row)
}

// seekDebugFrame starts the search for the debug file.
func (im *Image) seekDebugFrame() {
	s, d := im.store, &im.debug
	if im.layout == nil {
		return
	}
	w := debugWanted{pid: d.pid, path: im.Path, buildID: im.BuildID, link: im.link, arch: im.arch}
	if len(im.loads) > 0 {
		w.vaddr = im.loads[0].Vaddr
	}
	find, quota := s.find, s.tables
	d.seeking = newTask(func() debugFrame { return find.debugFrame(&w, quota) },
		func(f debugFrame) { f.share.giveBack() })
	if im.source != nil {
		d.seeking.goesThrough(im.source)
	}
	if s.await(&d.seeking.job, "debug file of "+im.Path, &d.late) {
		im.adoptDebugFrame()
	} else {
		s.late = append(s.late, im)
	}
}

// adoptDebugFrame stores the result of the search. A file that exists but cannot be used is reported.
func (im *Image) adoptDebugFrame() {
	d := &im.debug
	found := d.seeking.result
	d.cfi, d.share, d.seeking = found.cfi, found.share, nil
	if found.err != nil {
		im.store.Report(im.Path, found.err)
	}
}

// forget gives the memory back to the quota.
func (d *debugInfo) forget(s *Store) {
	if d.seeking != nil {
		s.reader.abandon(&d.seeking.job)
	}
	d.share.giveBack()
	*d = debugInfo{sought: true}
}

// takeIn adopts the debug files that have been read since.
func (s *Store) takeIn() {
	waiting := s.late[:0]
	for _, im := range s.late {
		switch {
		case im.debug.seeking == nil: // forgotten
		case !im.debug.seeking.isDone():
			waiting = append(waiting, im)
		default:
			if im.adoptDebugFrame(); im.debug.cfi != nil {
				im.rules.Drop()
				im.ranges, im.rows = rule.Ranges{}, nil
			}
		}
	}
	clear(s.late[len(waiting):])
	s.late = waiting
}

// debugFrame looks for the debug file of an image and reads it.
func (fd *finder) debugFrame(w *debugWanted, q *quota) (found debugFrame) {
	found.share.of = q
	file, err := fd.debugFile(w)
	if err == nil {
		defer file.Close()
		if found.cfi, err = fd.readDebugFrame(file, w, &found.share); err != nil {
			err = fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		found.err = err
	}
	return found
}

func (fd *finder) debugFile(w *debugWanted) (*process.OpenFile, error) {
	if fd.offline != nil {
		return fd.offline.debugFile(w)
	}
	in := func(pid uint32) debugfile.Root {
		return func(path string) (*process.OpenFile, error) {
			file, err := fd.access.OpenWithin(pid, path)
			if err != nil {
				return nil, err
			}
			return &process.OpenFile{File: file, By: fd.readBy(w.pid, file)}, nil
		}
	}
	return debugfile.Find([]debugfile.Root{in(w.pid), in(0)}, w.path, w.buildID, w.link)
}

// readDebugFrame reads .debug_frame; nil when the file has none.
func (fd *finder) readDebugFrame(file *process.OpenFile, w *debugWanted, taken *share) (
	*dwarfcfi.Table, error,
) {
	st, err := process.Fstat(file.File)
	if err != nil {
		return nil, err
	}
	layout, err := elf.ReadLayout(file, st.Size)
	switch {
	case err != nil:
		return nil, err
	case layout.DebugFrame.Size == 0:
		return nil, nil
	case rule.ArchOf(layout.Machine) != w.arch:
		return nil, fmt.Errorf("%v: %w", layout.Machine, errMachine)
	case len(layout.Loads) > 0 && layout.Loads[0].Vaddr != w.vaddr:
		// Prelinking moved the image and left its debug file alone.
		return nil, fmt.Errorf("segments at %#x, in the image at %#x: debug file %w",
			layout.Loads[0].Vaddr, w.vaddr, debugfile.ErrOther)
	}
	sections, err := dwarfcfi.ReadDebugFrame(file, layout, taken.allow)
	if err != nil {
		return nil, err
	}
	return dwarfcfi.New(sections)
}
