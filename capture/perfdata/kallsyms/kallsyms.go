// Package kallsyms reads the kernel's list of its symbols, /proc/kallsyms, one line each:
//
//	ffffffff814b2c40 t load_elf_binary
//	ffffffffc0a01000 T xfs_bmap	[xfs]
//
// The letters are those of nm(1). For users who may not see addresses (see Hidden) the addresses
// are zeros. The bytes of a symbol belong to the Reader.
package kallsyms

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
)

// Reader reads symbols in the order of the list. The kernel makes each line when it is read, and there are
// a hundred thousand, so callers should not read further than they need. Nothing is allocated for a symbol.
type Reader struct {
	// The symbol that Next has read. The bytes are good until the next call.
	Type   byte
	Name   []byte
	Module []byte // "[xfs]"; empty for the kernel itself

	lines   *bufio.Scanner
	address []byte
}

// NewReader returns a Reader of the list.
func NewReader(list io.Reader) *Reader { return &Reader{lines: bufio.NewScanner(list)} }

// Next reads a line, and reports whether there was one. A malformed line gives a symbol without a name, whose
// Address is an error, so that callers notice damage.
func (r *Reader) Next() bool {
	if !r.lines.Scan() {
		r.address, r.Type, r.Name, r.Module = nil, 0, nil, nil
		return false
	}
	line := r.lines.Bytes()
	at := 16 // digits that the kernel writes
	if len(line) <= at || line[at] != ' ' {
		at = bytes.IndexByte(line, ' ')
	}
	if at < 0 || len(line) < at+len(" t x") || line[at+2] != ' ' {
		r.address, r.Type, r.Name, r.Module = nil, 0, nil, nil
		return true
	}
	r.address, r.Type, r.Name, r.Module = line[:at], line[at+1], line[at+3:], nil
	if line[len(line)-1] == ']' { // most symbols belong to no module
		r.Name, r.Module, _ = bytes.Cut(r.Name, []byte{'\t'})
	}
	return true
}

// Address is the symbol's address. It is parsed only here, as callers need only the names of most symbols.
func (r *Reader) Address() (uint64, error) { return strconv.ParseUint(string(r.address), 16, 64) }

// Err is the error that ended reading, if any did.
func (r *Reader) Err() error { return r.lines.Err() }
