// Package module says what the walk asks of the files that processes map: what is at an address, which rule or row
// holds there, its code, and what the call before a return address says. Package image implements it.
//
// In all methods, pc is an address of a process that lies in the mapping m, which is of the module's file. What a
// method cannot say, because the file was not read in time, it may say later: see [State] and [Source.Arrivals].
package module

import (
	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/gotab"
	"unspool/unwind/jit"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A Source finds the module behind a mapping, and reads generated code. A goroutine at a time uses it and its modules.
type Source interface {
	jit.Inputs
	// Source says from where generated code is read.
	Source() jit.Source
	// Module returns the module behind a mapping of a process, nil if it can have none. For the same file it is the
	// same value.
	Module(pid uint32, m *vmas.Mapping) Module
	// Arrivals is how often something has come that questions were answered without before: that a file was opened,
	// its tables, or a piece of its code.
	Arrivals() uint64
}

// A Module is a file with code.
type Module interface {
	// State says what is known of the file, which is read for that.
	State() State
	// Part reports whether there is code at an offset in the file, which has been read, by its segments and not by what
	// the process may execute. The answer is the same for all offsets from lo up to hi.
	Part(off uint64) (lo, hi uint64, code bool)
	// FDE returns the CFI of the function around pc, whose address there is addr.
	FDE(m *vmas.Mapping, pc uint64) (d dwarfcfi.FDE, addr uint64, ok bool)

	// Rules returns the rules that are known. They are the same for as long as the module is in use.
	Rules() *rule.Set
	// Find finds a rule that Rules does not have, and adds it, but for [rule.Unreadable]. off is the offset of pc in
	// the file.
	Find(m *vmas.Mapping, pc, off uint64) rule.Rule
	// Row gives the CFI row for pc. The error is [dwarfcfi.ErrNoFDE] if there is none.
	Row(m *vmas.Mapping, pc uint64, row *dwarfcfi.Row) error
	// KeptRow gives the row for pc if kind is [rule.General]. It is for the architectures whose rows are not compiled
	// to rules. The row is valid until the next call.
	KeptRow(arch *rule.Arch, m *vmas.Mapping, pc uint64) (kind rule.Rule, row *dwarfcfi.Row)

	// CodeAt returns the code, nil if it cannot be read, and the address of pc there.
	CodeAt(m *vmas.Mapping, pc uint64) (code *asm.Code, addr uint64)
	// GoTable returns Go's function table, nil if there is none, and the address of pc there.
	GoTable(m *vmas.Mapping, pc uint64) (table *gotab.Table, addr uint64)

	// IsReturn reports whether a call returns to pc, which lies behind an address in m: it follows a call, or is where
	// a coroutine or a signal handler ends.
	IsReturn(m *vmas.Mapping, pc uint64) bool
	// EndsContext reports whether the first function of a coroutine returns to pc, which lies behind an address in m,
	// and not behind a call.
	EndsContext(m *vmas.Mapping, pc uint64) bool
	// CallsOther reports whether the call before pc calls a function directly from which no jump leads to the one
	// around callee: an offset in the file, or Elsewhere. It is false if that is not known, for code that is not of
	// x86-64, and with atOnce also if it takes code that is not in the page cache.
	CallsOther(m *vmas.Mapping, pc, callee uint64, atOnce bool) bool
	// LeadsElsewhere reports whether no jump leads from the function that begins at entry to the one around callee.
	// Both are addresses as CodeAt gives them; callee can also be Elsewhere or NoFile. It is false if that is not known.
	LeadsElsewhere(entry, callee uint64) bool
}

// Callees that are in no function of the module.
const (
	// Elsewhere is a function of another file.
	Elsewhere = ^uint64(0) - iota
	// NoFile is code that is in no file: a register or a pointer says where, other than by a procedure linkage table.
	NoFile
)

// A State is what is known of a module.
type State struct {
	// Entry is the address of the program's first instruction, in the file's own addresses.
	Entry uint64
	// Read means that the file was read, and can be used.
	Read bool
	// Generated means that it has generated code: it is no ELF file, or was made of such code, and may have CFI.
	Generated bool
	// CFI means that it has CFI.
	CFI bool
	// Late means that a piece of it was not read in time: what was just asked may have another answer.
	Late bool
}
