// Package jitdump reads jitdump files, in which a JIT runtime writes down the
// code that it generates: jit-PID.dump (tools/perf/Documentation/
// jitdump-specification.txt in the kernel's sources). A page of the file is
// mapped executable, so that a record of that mapping tells of the file.
//
// The file grows while the program runs. A [Reader] returns the records that are there, and continues when
// there are more. Their bytes belong to the caller, but for the name, which is valid until the next record.
package jitdump

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

var (
	// ErrNotJitdump is wrapped by the error about a file that is none.
	ErrNotJitdump = errors.New("not a jitdump file")
	// ErrBad is wrapped by errors about malformed records.
	ErrBad = errors.New("bad jitdump")
)

// Error is an error with its place.
type Error struct {
	Offset int64 // in the file
	What   string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("jitdump+%#x: %s: %v", e.Offset, e.What, e.Err)
}

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// IsName reports whether a file has the name of a jitdump.
func IsName(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "jit-") && strings.HasSuffix(name, ".dump")
}

// IsInjected reports whether a file has the name of an ELF file that perf inject --jit makes of one CodeLoad, and
// maps in the recording in place of the dump: jitted-PID-INDEX.so (tools/perf/util/jitdump.c).
func IsInjected(file string) bool {
	name, ok := strings.CutPrefix(path.Base(file), "jitted-")
	name, so := strings.CutSuffix(name, ".so")
	pid, index, both := strings.Cut(name, "-")
	return ok && so && both && isNumber(pid) && isNumber(index)
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Header is the file's header.
type Header struct {
	Version uint32
	Machine elf.Machine
	PID     uint32 // as the process itself sees it, in its PID namespace
	Time    uint64 // of the file's making
	Flags   uint64
}

// ArchTime is the flag for timestamps that are the processor's, not CLOCK_MONOTONIC's.
const ArchTime = 1 << 0

// A Kind says what a record is about.
type Kind uint32

const (
	CodeLoad      Kind = iota // code was generated
	CodeMove                  // code was moved
	DebugInfo                 // source lines of the next CodeLoad
	CodeClose                 // the runtime has ended
	UnwindingInfo             // CFI of the next CodeLoad
)

// Entry is a CodeLoad or a CodeMove.
type Entry struct {
	Kind     Kind
	Time     uint64 // in ns of CLOCK_MONOTONIC, unless ArchTime
	PID, TID uint32
	Addr     uint64 // where the code is now
	From     uint64 // where it was, for CodeMove
	Size     uint64 // of the code, in bytes
	Index    uint64 // of the code, unique in the file

	Name  []byte // of a CodeLoad; valid until the next record is read
	Frame []byte // .eh_frame for a CodeLoad, nil without; the caller's to keep
}

// FrameAddr is the address of Frame relative to the start of the code: the
// tables are written as if they lay behind the code, at the next eight bytes.
func (r *Entry) FrameAddr() uint64 { return (r.Size + 7) &^ 7 }

// Sizes of what the specification lays out, and limits on what a record may claim.
const (
	headerSize = 40
	prefixSize = 16 // id, total_size, timestamp
	loadSize   = 40 // pid, tid, vma, code_addr, code_size, code_index
	moveSize   = 48 // pid, tid, vma, old_code_addr, new_code_addr, code_size, code_index
	infoSize   = 24 // unwinding_size, eh_frame_hdr_size, mapped_size

	maxHeader = 4 << 10
	maxRecord = 1 << 30
	maxName   = 4 << 10  // longer names are cut
	maxFrame  = 16 << 10 // larger tables are left out
	bufSize   = 32 << 10
)

const (
	magic      = 0x4a695444 // "JiTD"
	otherMagic = 0x4454694a
)

// A Reader reads the records of a file that may still grow.
type Reader struct {
	Header

	r    io.ReaderAt
	off  int64 // of the next record
	read int64 // bytes that were looked at
	err  error // for good

	buf   [bufSize]byte
	start int64 // of what is in buf
	n     int
	frame []byte // of the UnwindingInfo that was read last
}

// NewReader reads the header. The error is io.EOF while the file is shorter;
// else it wraps [ErrNotJitdump] or is the file's.
func NewReader(r io.ReaderAt) (*Reader, error) {
	d := &Reader{r: r}
	b, err := d.at(0, headerSize)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	size := le.Uint32(b[8:])
	d.Header = Header{
		Version: le.Uint32(b[4:]),
		Machine: elf.Machine(le.Uint32(b[12:])),
		PID:     le.Uint32(b[20:]),
		Time:    le.Uint64(b[24:]),
		Flags:   le.Uint64(b[32:]),
	}
	refuse := func(what string) (*Reader, error) { return nil, &Error{0, what, ErrNotJitdump} }
	switch m := le.Uint32(b); {
	case m == otherMagic:
		return refuse("written in the other byte order")
	case m != magic:
		return refuse(fmt.Sprintf("magic number %#x", m))
	case d.Version != 1:
		return refuse(fmt.Sprintf("version %d", d.Version))
	case size < headerSize || size > maxHeader:
		return refuse(fmt.Sprintf("header of %d bytes", size))
	// CPython 3.13 writes none
	case d.Machine != elf.EM_X86_64 && d.Machine != elf.EM_386 && d.Machine != elf.EM_NONE:
		return refuse(fmt.Sprintf("code for %v", d.Machine))
	}
	d.off = int64(size)
	return d, nil
}

// Looked is how many bytes of the file were looked at so far.
func (d *Reader) Looked() int64 { return d.read }

// Next fills r with the next CodeLoad or CodeMove. It returns io.EOF if there is none yet, or only a part of
// it: call it again when the file has grown. All other errors are final.
func (d *Reader) Next(r *Entry) error {
	for d.err == nil {
		more, err := d.next(r)
		if err == io.EOF || err == nil && more {
			return err
		}
		d.err = err
	}
	return d.err
}

// next reads one record and reports whether it is one for the caller.
func (d *Reader) next(r *Entry) (bool, error) {
	b, err := d.at(d.off, prefixSize)
	if err != nil {
		return false, err
	}
	le := binary.LittleEndian
	kind, size, time := Kind(le.Uint32(b)), int64(le.Uint32(b[4:])), le.Uint64(b[8:])
	if size < prefixSize || size > maxRecord {
		return false, d.bad(fmt.Sprintf("record of %d bytes", size))
	}
	// The last byte is there: then so is what is before it.
	if size > bufSize {
		var last [1]byte
		if n, err := d.r.ReadAt(last[:], d.off+size-1); n == 0 {
			return false, err
		}
	}
	b, err = d.at(d.off, int(min(size, bufSize)))
	if err != nil {
		return false, err
	}
	body := b[prefixSize:]
	*r = Entry{Kind: kind, Time: time}
	switch kind {
	case CodeLoad:
		if len(body) < loadSize {
			return false, d.bad("CODE_LOAD too short")
		}
		r.PID, r.TID = le.Uint32(body), le.Uint32(body[4:])
		r.Addr, r.Size, r.Index = le.Uint64(body[16:]), le.Uint64(body[24:]), le.Uint64(body[32:])
		name := body[loadSize:min(len(body), loadSize+maxName)]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		r.Name = name
		r.Frame, d.frame = d.frame, nil
	case CodeMove:
		if len(body) < moveSize {
			return false, d.bad("CODE_MOVE too short")
		}
		r.PID, r.TID = le.Uint32(body), le.Uint32(body[4:])
		r.From, r.Addr = le.Uint64(body[16:]), le.Uint64(body[24:])
		r.Size, r.Index = le.Uint64(body[32:]), le.Uint64(body[40:])
	case UnwindingInfo:
		if d.frame, err = d.unwinding(size); err != nil {
			return false, err
		}
	}
	d.off += size
	if kind != CodeLoad && kind != CodeMove {
		return false, nil
	}
	if r.Addr+r.Size < r.Addr || r.From+r.Size < r.From {
		return false, nil // no code is there
	}
	return true, nil
}

// unwinding is the .eh_frame in an UNWINDING_INFO record: all before the .eh_frame_hdr, which comes last. A
// runtime writes an empty one for code without CFI.
func (d *Reader) unwinding(size int64) ([]byte, error) {
	if size < prefixSize+infoSize {
		return nil, d.bad("UNWINDING_INFO too short")
	}
	b, err := d.at(d.off+prefixSize, infoSize)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	whole, hdr := le.Uint64(b), le.Uint64(b[8:])
	if whole > uint64(size-prefixSize-infoSize) || hdr > whole {
		return nil, d.bad("UNWINDING_INFO shorter than it says")
	}
	n := int(min(whole-hdr, maxFrame+1))
	if n == 0 || n > maxFrame {
		return nil, nil
	}
	frame := make([]byte, n)
	if got, err := d.r.ReadAt(frame, d.off+prefixSize+infoSize); got < n {
		return nil, err
	}
	return frame, nil
}

func (d *Reader) bad(what string) error { return &Error{d.off, what, ErrBad} }

// at gives n bytes of the file, at most bufSize, valid until the next call;
// io.EOF when they are not there.
func (d *Reader) at(off int64, n int) ([]byte, error) {
	if i := off - d.start; i >= 0 && i+int64(n) <= int64(d.n) {
		return d.buf[i:][:n], nil
	}
	got, err := d.r.ReadAt(d.buf[:], off)
	d.start, d.n = off, got
	d.read += int64(got)
	if got >= n {
		return d.buf[:n], nil
	}
	if err == nil {
		err = io.EOF
	}
	return nil, err
}
