// Package elftest writes small ELF files for tests.
package elftest

import (
	"bytes"
	"encoding/binary"
)

var le = binary.LittleEndian

// Base is where the file's only segment is.
const Base = 0x400000

// Small writes an executable of the class, 64 or 32, with one segment, a note with build ID
// "12345678", .eh_frame_hdr, .eh_frame and section headers. .eh_frame holds frame, whose FDE at
// byte fde covers code at Base+0x1000.
func Small(class int, frame []byte, fde uint64) []byte {
	w := writer{wide: class == 64}
	headers := uint64(64 + 3*56)
	note := append(words(4, 8, 3), "GNU\x0012345678"...)
	noteAt := headers
	hdrAt := noteAt + uint64(len(note))
	frameAt := hdrAt + 20
	// The version; the encodings of the pointer to .eh_frame (pcrel, sdata4), of the number of
	// entries (udata4) and of the entries (datarel, sdata4); then the values.
	hdr := append([]byte{1, 0x1b, 0x03, 0x3b},
		words(uint32(frameAt-hdrAt-4), 1, uint32(0x1000-hdrAt), uint32(frameAt-hdrAt+fde))...)
	namesAt := frameAt + uint64(len(frame))
	shoff := namesAt + uint64(len(names))

	w.header(class, shoff)
	w.segment(1, 5, 0, 0x2000)
	w.segment(4, 4, noteAt, uint64(len(note)))
	w.segment(0x6474e550, 4, hdrAt, uint64(len(hdr)))
	w.pad(headers)
	for _, part := range [][]byte{note, hdr, frame, []byte(names)} {
		w.b = append(w.b, part...)
	}
	w.section("", 0, 0, 0, 0, 0)
	w.section(".note.gnu.build-id", 7, 2, Base+noteAt, noteAt, uint64(len(note)))
	w.section(".eh_frame_hdr", 1, 2, Base+hdrAt, hdrAt, uint64(len(hdr)))
	w.section(".eh_frame", 1, 2, Base+frameAt, frameAt, uint64(len(frame)))
	w.section(".plt", 1, 6, Base+0x1800, 0x1800, 0x40)
	w.section(".shstrtab", 3, 0, 0, namesAt, uint64(len(names)))
	w.pad(0x2000)
	return w.b
}

const names = "\x00.eh_frame\x00.eh_frame_hdr\x00.note.gnu.build-id\x00.plt\x00.shstrtab\x00"

// words are 32-bit words in the file's byte order.
func words(list ...uint32) (b []byte) {
	for _, v := range list {
		b = le.AppendUint32(b, v)
	}
	return b
}

type writer struct {
	b    []byte
	wide bool
}

func (w *writer) u32(v uint32) { w.b = le.AppendUint32(w.b, v) }

func (w *writer) word(v uint64) {
	if w.wide {
		w.b = le.AppendUint64(w.b, v)
	} else {
		w.u32(uint32(v))
	}
}

func (w *writer) pad(to uint64) { w.b = append(w.b, make([]byte, to-uint64(len(w.b)))...) }

func (w *writer) header(class int, shoff uint64) {
	w.b = append(w.b, 0x7f, 'E', 'L', 'F', byte(class/32), 1, 1)
	w.pad(16)
	machine, phsize, shsize := uint16(62), 56, 64
	if !w.wide {
		machine, phsize, shsize = 3, 32, 40
	}
	w.b = le.AppendUint16(le.AppendUint16(w.b, 2), machine)
	w.u32(1)
	w.word(Base + 0x1000)
	w.word(64)
	w.word(shoff)
	w.u32(0)
	for _, v := range []int{64, phsize, 3, shsize, 6, 5} {
		w.b = le.AppendUint16(w.b, uint16(v))
	}
	w.pad(64)
}

func (w *writer) segment(typ, flags uint32, offset, size uint64) {
	w.u32(typ)
	if w.wide {
		w.u32(flags)
	}
	for _, v := range []uint64{offset, Base + offset, Base + offset, size, size} {
		w.word(v)
	}
	if !w.wide {
		w.u32(flags)
	}
	w.word(4)
}

func (w *writer) section(name string, typ uint32, flags, addr, offset, size uint64) {
	if name == "" {
		w.u32(0)
	} else {
		w.u32(uint32(bytes.Index([]byte(names), []byte("\x00"+name+"\x00")) + 1))
	}
	w.u32(typ)
	for _, v := range []uint64{flags, addr, offset, size} {
		w.word(v)
	}
	w.b = append(w.b, make([]byte, 8)...)
	align := uint64(4)
	if name == "" {
		align = 0
	}
	w.word(align)
	w.word(0)
}
