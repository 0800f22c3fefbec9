// Package gotab reads the function table of Go binaries (.gopclntab, runtime.pclntab), which is
// used in the place of the call frame information (CFI) that Go code does not have. The format is that
// of runtime/symtab.go and cmd/link/internal/ld/pcln.go, of Go 1.16 and later.
//
// [Read] finds the table of an ELF file, stripped or not. [Table.Rule] gives the rule for an
// address in the form of package rule, [Table.Row] the same as a CFI row. The tables of functions in
// assembly are not always right: their code is decoded, and the few functions of the runtime that
// switch stacks are known by name.
//
// [ReadNames] reads the functions' names from the same table, on any architecture.
//
// A table refers to the bytes or the reader that it was read from, which the caller owns and keeps.
// It fills caches while it answers, so one goroutine at a time may use it.
package gotab
