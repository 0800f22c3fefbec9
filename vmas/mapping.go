package vmas

// Bits of Prot and Flags (PROT_* and MAP_* in <asm-generic/mman-common.h>). Flags may have others, which nobody reads.
const (
	ProtRead  = 0x1
	ProtWrite = 0x2
	ProtExec  = 0x4

	FlagShared  = 0x1 // MAP_SHARED
	FlagPrivate = 0x2 // MAP_PRIVATE
)

// Mapping is one range of a process's address space that it may execute.
type Mapping struct {
	Start, End  uint64 // addresses from Start up to, not including, End
	Offset      uint64 // of Start in the file, in bytes
	Prot, Flags uint32 // ProtRead, …; FlagShared or FlagPrivate, …
	File        *File  // never nil
	Time        uint64 // when it was mapped, in ns of the records' clock; 0 where unknown
	// Copied is the code that memory without a file may be a copy of, nil if none is known.
	Copied *Copied

	seq     uint32 // age within its space: smaller is older, modulo 2^32
	settled bool   // Settle was called: the memory is a copy
}

// continues reports whether m starts where e ends and both are parts of the same file, or of memory without
// a file, and behave as one mapping. Memory that may be a copy of code stays a mapping of its own.
func (m *Mapping) continues(e *Mapping) bool {
	return e.End == m.Start && e.File == m.File && e.Copied == nil && m.Copied == nil &&
		e.Prot == m.Prot && e.Flags == m.Flags &&
		(m.File.Kind == Anonymous || e.Offset+(e.End-e.Start) == m.Offset)
}
