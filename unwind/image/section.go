package image

import (
	"errors"
	"fmt"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/gotab"
)

// A section is a part of a file in memory, whose pieces are read when they are first needed: a few thousand
// samples need a small share of the CFI of a large program, and touching new memory costs more than reading
// into it.
type section struct {
	source *source
	offset int64 // in the file
	data   []byte
	size   int    // of a piece
	read   []bool // which pieces are there

	missing int          // how many pieces are not there
	inflate func() error // fills a compressed section, which is one piece; nil for others
	broken  bool         // it cannot be inflated

	image    *Image       // whose tables it belongs to; nil while the reader reads these, which may block
	fetching *task[error] // nil unless pieces are on their way
	from, to int          // of the pieces on their way
}

const (
	pieceSize = 4 << 10
	lazySize  = 128 << 10 // what is smaller is read whole
)

// errCut means that a file was truncated or written to.
var errCut = errors.New("the file was changed while it was in use")

// loader reads the sections of a file, the large ones piece by piece as they are needed.
func (t *tables) loader(s *source) dwarfcfi.Loader {
	return func(e elf.Extent, whole bool) (dwarfcfi.Section, error) {
		if e.Packed != elf.Plain && !whole && s.file != nil && t.layout.Holds(e) {
			return t.inflated(s, e)
		}
		if whole || e.Packed != elf.Plain || e.Size < lazySize || s.file == nil || !t.layout.Holds(e) {
			data, err := t.layout.ContentsWithin(s.contents(), e, t.share.allow)
			return dwarfcfi.Section{Data: data}, err
		}
		data, fetch, err := t.partOf(s)(e.Offset, e.Size)
		return dwarfcfi.Section{Data: data, Fetch: fetch}, err
	}
}

// inflated is a compressed section, which is inflated when it is first needed: Go programs, which most often
// have such sections, hardly ever need theirs.
func (t *tables) inflated(s *source, e elf.Extent) (dwarfcfi.Section, error) {
	size, err := t.layout.InflatedSize(s, e)
	if err == nil {
		err = t.share.allow(e.Size + size)
	}
	if err != nil {
		return dwarfcfi.Section{}, err
	}
	p := &section{source: s, data: make([]byte, size), read: make([]bool, 1), missing: 1, size: int(size)}
	layout := t.layout
	p.inflate = func() error {
		data, err := layout.Contents(s, e)
		copy(p.data, data)
		return err
	}
	t.lazy = append(t.lazy, p)
	return dwarfcfi.Section{Data: p.data, Fetch: p.fetch}, nil
}

// partOf reads parts of a file, large ones piece by piece as they are needed.
func (t *tables) partOf(s *source) gotab.LoadFunc {
	return func(offset, size uint64) (data []byte, fetch func(from, to int) error, err error) {
		if err := t.share.allow(size); err != nil {
			return nil, nil, err
		}
		data = make([]byte, size)
		if size < lazySize || s.file == nil {
			_, err := s.contents().ReadAt(data, int64(offset))
			return data, nil, err
		}
		p := &section{source: s, offset: int64(offset), data: data, size: pieceSize}
		p.missing = int((size + pieceSize - 1) / pieceSize)
		p.read = make([]bool, p.missing)
		t.lazy = append(t.lazy, p)
		return data, p.fetch, nil
	}
}

// fetch reads the bytes in [from, to): see [dwarfcfi.Section].
func (p *section) fetch(from, to int) error {
	if p.broken {
		return dwarfcfi.ErrNoFDE
	}
	if i := from / p.size; p.missing == 0 || to <= (i+1)*p.size && i < len(p.read) && p.read[i] {
		return nil
	}
	for i := from / p.size; i < len(p.read) && i*p.size < to; i++ {
		if p.read[i] {
			continue
		}
		end := i + 1
		for end < len(p.read) && end*p.size < to && !p.read[end] {
			end++
		}
		if err := p.fill(i, end); err != nil {
			return err
		}
	}
	return nil
}

// fill reads the pieces from one up to another.
func (p *section) fill(from, to int) error {
	if p.image == nil {
		if err := p.pread(from, to); err != nil {
			return err
		}
		p.have(from, to)
		return nil
	}
	if p.fetching == nil && p.readNow(from, to) {
		p.have(from, to)
		return nil
	}
	if p.fetching == nil {
		p.from, p.to = from, to
		p.fetching = newTask(func() error { return p.pread(from, to) }, nil)
		p.fetching.concerns(p.source)
	}
	if !p.image.wait(&p.fetching.job) {
		return errMissed
	}
	err := p.fetching.result
	p.fetching = nil
	switch {
	case err == nil:
	case errors.Is(err, errCut), errors.Is(err, errClosed):
		return p.image.spoil(err)
	default: // the rest of the file can be used
		p.broken = true
		p.image.store.Report(p.image.Path, fmt.Errorf("%s: %w", p.image.Path, err))
		return dwarfcfi.ErrNoFDE
	}
	p.have(p.from, p.to)
	if p.from > from || p.to < to {
		return p.fill(from, to) // other pieces were on their way
	}
	return nil
}

// readNow reads pieces that are in the page cache, of a file that has not changed. It does not block.
func (p *section) readNow(from, to int) bool {
	data := p.data[from*pieceSize : min(to*pieceSize, len(p.data))]
	if p.inflate != nil {
		return false
	}
	if p.source.holdOpen() == nil {
		return false
	}
	defer p.source.release()
	n, err := p.source.readNow(data, p.offset+int64(from*pieceSize))
	return err == nil && n == len(data) && !p.source.changed()
}

// pread reads pieces of the file, and fails if the file has changed since it was opened.
func (p *section) pread(from, to int) error {
	if _, err := p.source.hold(); err != nil {
		return err
	}
	defer p.source.release()
	if p.inflate != nil {
		if err := p.inflate(); err != nil || !p.source.changed() {
			return err
		}
		return errCut
	}
	data := p.data[from*pieceSize : min(to*pieceSize, len(p.data))]
	n, err := p.source.ReadAt(data, p.offset+int64(from*pieceSize))
	switch {
	case n < len(data) && err == nil, p.source.changed():
		return errCut
	case n < len(data):
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return nil
}

func (p *section) have(from, to int) {
	for i := from; i < to; i++ {
		if !p.read[i] {
			p.read[i] = true
			p.missing--
		}
	}
}

// spoil marks the image as one that cannot be used any more, and reports that.
func (im *Image) spoil(err error) error {
	if im.err == nil {
		im.err = fmt.Errorf("%s: %w", im.Path, err)
		im.store.Report(im.Path, im.err)
	}
	return im.err
}
