package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
)

// Limits on what notes may cost.
const (
	maxNotes    = 1 << 16 // bytes of notes in one segment or section
	maxNoteRuns = 64      // segments and sections with notes
	maxBuildID  = 64
)

// NoteBuildID finds the build ID in the notes of a segment or section with the given
// alignment: the descriptor of a note of type NT_GNU_BUILD_ID from "GNU". It is a copy; nil
// when there is none.
func NoteBuildID(notes []byte, align uint64, order binary.ByteOrder) []byte {
	const ntGNUBuildID = 3
	if align != 8 {
		align = 4
	}
	for len(notes) >= 12 {
		namesz, descsz := uint64(order.Uint32(notes)), uint64(order.Uint32(notes[4:]))
		typ := order.Uint32(notes[8:])
		desc := (12 + namesz + align - 1) &^ (align - 1)
		end := desc + descsz
		if end > uint64(len(notes)) {
			return nil
		}
		if typ == ntGNUBuildID && string(notes[12:12+namesz]) == "GNU\x00" && descsz > 0 && descsz <= maxBuildID {
			return bytes.Clone(notes[desc:end])
		}
		notes = notes[min((end+align-1)&^(align-1), uint64(len(notes))):]
	}
	return nil
}

// BuildID returns the build ID, nil when there is none. Relocatable files (kernel modules)
// have notes in sections only, and in Go's files the segment of notes leaves out the GNU one.
func (f *File) BuildID() []byte {
	left := maxNoteRuns
	if id := f.segmentBuildID(&left); id != nil {
		return id
	}
	return f.sectionBuildID(&left)
}

// segmentBuildID looks for the build ID in the note segments, and reads at most left of them.
func (f *File) segmentBuildID(left *int) []byte {
	for i := range f.Segments {
		if s := &f.Segments[i]; s.Type == elf.PT_NOTE {
			if id := f.buildIDAt(s.Offset, s.Filesz, s.Align, left); id != nil {
				return id
			}
		}
	}
	return nil
}

// sectionBuildID does the same with the note sections.
func (f *File) sectionBuildID(left *int) []byte {
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Type == elf.SHT_NOTE {
			if id := f.buildIDAt(s.Offset, s.Size, s.Align, left); id != nil {
				return id
			}
		}
	}
	return nil
}

func (f *File) buildIDAt(offset, size, align uint64, left *int) []byte {
	if *left--; *left < 0 {
		return nil
	}
	notes, err := f.Read(offset, min(size, maxNotes))
	if err != nil {
		return nil
	}
	return NoteBuildID(notes, align, f.Order)
}

// ReadBuildID returns the build ID of a little-endian ELF file, nil if it has none. It reads only
// headers and notes. The error wraps [ErrBadELF] or the reader's error.
func ReadBuildID(r io.ReaderAt) ([]byte, error) {
	id, _, err := ReadIdentity(r)
	return id, err
}

// ReadIdentity does what ReadBuildID does, and returns the PT_LOAD segments as well. They are not
// known if the error is not nil.
func ReadIdentity(r io.ReaderAt) (buildID []byte, loads Loads, err error) {
	f, err := readHeader(r, sizeUnknown)
	if err != nil {
		return nil, nil, err
	}
	if err := f.littleEndian(); err != nil {
		return nil, nil, err
	}
	if err := f.readSegments(); err != nil {
		return nil, nil, err
	}
	left := maxNoteRuns
	if id := f.segmentBuildID(&left); id != nil {
		return id, f.Loads(), nil
	}
	if err := f.readSections(); err != nil {
		return nil, nil, err
	}
	left = maxNoteRuns
	return f.sectionBuildID(&left), f.Loads(), nil
}

func (f *File) littleEndian() error {
	if f.Order != binary.LittleEndian {
		return badELF("big-endian files are not supported", elf.EI_DATA)
	}
	return nil
}
