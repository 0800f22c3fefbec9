// Package kallsyms reads the kernel's list of its symbols, /proc/kallsyms, one line each:
//
//	ffffffff814b2c40 t load_elf_binary
//	ffffffffc0a01000 T xfs_bmap	[xfs]
//
// The letters are those of nm(1). Whom kernel.kptr_restrict keeps out reads zeros as addresses.
package kallsyms

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
)

// Reader reads symbols in the order of the list. The kernel makes each line as it is read, and there are a
// hundred thousand: read no further than you need. Nothing is allocated for a symbol.
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

// Next reads a line, and says whether there was one. One of another form gives a symbol without a name, whose
// address is an error: where a list is damaged, nobody knows what is missing.
func (r *Reader) Next() bool {
	r.address, r.Type, r.Name, r.Module = nil, 0, nil, nil
	if !r.lines.Scan() {
		return false
	}
	address, rest, _ := bytes.Cut(r.lines.Bytes(), []byte{' '})
	if len(rest) >= 3 && rest[1] == ' ' {
		r.address, r.Type = address, rest[0]
		r.Name, r.Module, _ = bytes.Cut(rest[2:], []byte{'\t'})
	}
	return true
}

// Address is the symbol's address. It is parsed only here, as most symbols are looked at for their names only.
func (r *Reader) Address() (uint64, error) { return strconv.ParseUint(string(r.address), 16, 64) }

// Err is the error that ended reading, if any did.
func (r *Reader) Err() error { return r.lines.Err() }
