package machine

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

var le = binary.LittleEndian

// A kind is how a function keeps its frame.
type kind uint8

const (
	bySP  kind = iota // sub $N,%rsp
	byBP              // push %rbp; mov %rsp,%rbp; sub $N,%rsp
	saves             // push %rbx; sub $N,%rsp
	// What follows is like bySP, but for its CFI.
	bare      // has none
	byR13     // says that the CFA is R13
	elsewhere // says that the CFA is in memory that is no stack
	outest    // has no caller: _start, or the start of a thread
	restorer  // what a signal handler returns to
)

// A function is code with CFI of known shape. Addresses are offsets in its file.
type function struct {
	start, ret, end uint64 // ret is that of its last instruction, the return
	kind            kind
	frame           uint64 // bytes of locals
	calls           []call
	body            []uint64 // instructions at which all of the frame is there
}

// A call is a call instruction.
type call struct {
	after  uint64 // the return address
	target int    // the function that is called; -1 if that is decided at run time
}

// An image is an ELF file with functions. The first one is _start, the second the start of threads.
type image struct {
	functions []function
	restorer  function // none of these
	bytes     []byte
}

const (
	codeAt = 0x1000
	sizeOf = 0x4000 // of every file
)

// newImage makes a file with functions of kinds that are chosen. They call each other, and any function of any file
// through a pointer. If they are alike, they are few, and their frames are of the same size.
func newImage(r *rand.Rand, buildID uint64, choose func() kind, alike bool) *image {
	w := &writer{im: &image{}}
	w.cfi.Write(cie)
	n, most := 6+r.IntN(10), 4 // calls of one
	if alike {
		n, most = 4, 2
	}
	for i := range n {
		k, frame := choose(), uint64(8*(1+r.IntN(24)))
		if i < 2 {
			k, frame = outest, 0
		} else if r.IntN(12) == 0 {
			frame = uint64(8 * r.IntN(400))
		}
		if alike {
			frame = 64
		}
		w.begin(k, frame)
		for c := range 1 + r.IntN(most) {
			target := -1
			if c > 0 && n > 3 && r.IntN(2) == 0 {
				target = 2 + r.IntN(n-2)
			}
			w.call(target)
		}
		w.end()
	}
	w.restorer()
	for _, d := range w.directs {
		from := codeAt + d.at + 5
		le.PutUint32(w.code.Bytes()[d.at+1:], uint32(int(w.im.functions[d.target].start)-from))
	}
	w.cfi.Write(make([]byte, 4))
	w.im.write(w.code.Bytes(), w.cfi.Bytes(), w.starts, buildID)
	return w.im
}

// A writer writes functions with their CFI, one after the other.
type writer struct {
	im        *image
	code, cfi bytes.Buffer
	directs   []direct
	starts    []fde

	f       function
	program []byte // of its FDE
	last    uint64 // up to where it goes
}

// An fde is where the FDE of the function at start is in .eh_frame.
type fde struct {
	start uint64
	at    int
}

// A direct is a direct call whose target is not written yet.
type direct struct{ at, target int }

func (w *writer) here() uint64 { return codeAt + uint64(w.code.Len()) }

// row makes a rule hold from here on.
func (w *writer) row(rule ...byte) {
	w.program = append(w.program, 2, byte(w.here()-w.last)) // DW_CFA_advance_loc1
	w.program, w.last = append(w.program, rule...), w.here()
}

// cfaOffset is DW_CFA_def_cfa_offset.
func cfaOffset(n uint64) []byte { return binary.AppendUvarint([]byte{0x0e}, n) }

func (w *writer) align() {
	for w.code.Len()%16 != 0 {
		w.code.WriteByte(0x90)
	}
}

// begin writes the beginning of a function, which sets up its frame.
func (w *writer) begin(k kind, frame uint64) {
	w.align()
	w.f = function{start: w.here(), kind: k, frame: frame}
	w.program, w.last = nil, w.f.start
	switch k {
	case outest:
		w.code.Write([]byte{0x31, 0xed})     // xor %ebp,%ebp
		w.program = append(w.program, 7, 16) // DW_CFA_undefined RA
		return
	case byBP:
		w.code.WriteByte(0x55)
		w.row(append(cfaOffset(16), 0x86, 2)...) // DW_CFA_offset: BP at CFA-16
		w.code.Write([]byte{0x48, 0x89, 0xe5})
		w.row(0x0d, 6) // DW_CFA_def_cfa_register BP
	case saves:
		w.code.WriteByte(0x53)
		w.row(append(cfaOffset(16), 0x83, 2)...)
	}
	w.code.Write(le.AppendUint32([]byte{0x48, 0x81, 0xec}, uint32(frame)))
	switch k {
	case bySP:
		w.row(cfaOffset(8 + frame)...)
	case saves:
		w.row(cfaOffset(16 + frame)...)
	case byR13:
		w.row(0x0c, 13, 8) // DW_CFA_def_cfa
	case elsewhere: // DW_CFA_def_cfa_expression: DW_OP_const8u
		w.row(le.AppendUint64([]byte{0x0f, 9, 0x0e}, 0x7000_0000_1000)...)
	}
}

// call writes a call of a function, or of any one for -1.
func (w *writer) call(target int) {
	w.f.body = append(w.f.body, w.here())
	w.code.WriteByte(0x90)
	if target >= 0 {
		w.directs = append(w.directs, direct{w.code.Len(), target})
		w.code.Write([]byte{0xe8, 0, 0, 0, 0})
	} else {
		w.code.Write([]byte{0xff, 0xd0}) // call *%rax
	}
	w.f.calls = append(w.f.calls, call{w.here(), target})
	w.f.body = append(w.f.body, w.here())
	w.code.WriteByte(0x90)
}

// end writes the end of a function.
func (w *writer) end() {
	last := byte(0xc3)
	switch w.f.kind {
	case outest:
		last = 0xf4 // hlt
	case byBP:
		w.code.WriteByte(0xc9)
		w.row(0x0c, 7, 8) // DW_CFA_def_cfa SP+8
	default:
		w.code.Write(le.AppendUint32([]byte{0x48, 0x81, 0xc4}, uint32(w.f.frame)))
		if w.f.kind == saves {
			w.row(cfaOffset(16)...)
			w.code.WriteByte(0x5b)
		}
		w.row(0x0c, 7, 8)
	}
	w.f.ret = w.here()
	w.code.WriteByte(last)
	w.f.end = w.here()
	w.im.functions = append(w.im.functions, w.f)
	if w.f.kind != bare {
		w.starts = append(w.starts, fde{w.f.start, w.cfi.Len()})
		writeFDE(&w.cfi, &w.f, w.cfi.Len(), w.program)
	}
}

// cie is a CIE of x86-64: the CFA is SP+8, and the return address below it. Pointers are absolute.
var cie = makeCIE([]byte{0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1})

func makeCIE(b []byte) []byte {
	for len(b)%8 != 4 {
		b = append(b, 0)
	}
	return append(le.AppendUint32(nil, uint32(len(b))), b...)
}

// writeFDE writes an FDE whose CIE is so many bytes before it.
func writeFDE(cfi *bytes.Buffer, f *function, back int, program []byte) {
	b := le.AppendUint32(nil, uint32(back+4))
	b = le.AppendUint64(le.AppendUint64(b, f.start), f.end-f.start)
	b = append(b, program...)
	for len(b)%8 != 4 {
		b = append(b, 0)
	}
	cfi.Write(le.AppendUint32(nil, uint32(len(b))))
	cfi.Write(b)
}

const (
	headers   = 64 + 3*56
	noteSize  = 12 + 4 + 8
	buildIDAt = headers + 12 + 4
)

// write makes the file: headers, a note with the build ID, .eh_frame_hdr, .eh_frame, and the code.
func (im *image) write(code, cfi []byte, starts []fde, buildID uint64) {
	hdrAt := uint64(headers + noteSize)
	const cfiAt = uint64(0x2800)
	note := append(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 4), 8), 3), "GNU\x00"...)
	note = le.AppendUint64(note, buildID)
	hdr := []byte{1, 0x1b, 0x03, 0x3b}
	hdr = le.AppendUint32(hdr, uint32(cfiAt-hdrAt-4))
	hdr = le.AppendUint32(hdr, uint32(len(starts)))
	for _, f := range starts { // in the order of addresses
		hdr = le.AppendUint32(hdr, uint32(f.start-hdrAt))
		hdr = le.AppendUint32(hdr, uint32(cfiAt+uint64(f.at)-hdrAt))
	}
	b := make([]byte, sizeOf)
	copy(b, "\x7fELF\x02\x01\x01")
	h := le.AppendUint16(le.AppendUint16(nil, 3), 62)
	h = le.AppendUint32(h, 1)
	h = le.AppendUint64(le.AppendUint64(le.AppendUint64(h, codeAt), 64), 0)
	h = le.AppendUint32(h, 0)
	for _, v := range []uint16{64, 56, 3, 64, 0, 0} {
		h = le.AppendUint16(h, v)
	}
	copy(b[16:], h)
	segment := func(i int, typ, flags uint32, at, size uint64) {
		p := le.AppendUint32(le.AppendUint32(nil, typ), flags)
		for _, v := range []uint64{at, at, at, size, size, 8} {
			p = le.AppendUint64(p, v)
		}
		copy(b[64+56*i:], p)
	}
	segment(0, 1, 5, 0, sizeOf)
	segment(1, 4, 4, headers, noteSize)
	segment(2, 0x6474e550, 4, hdrAt, uint64(len(hdr)))
	copy(b[headers:], note)
	copy(b[hdrAt:], hdr)
	copy(b[codeAt:], code)
	copy(b[cfiAt:], cfi)
	im.bytes = b
}
