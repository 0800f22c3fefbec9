// Package dwarfcfi reads the call frame information (CFI) of an ELF image: for a
// program counter it finds the frame description entry (FDE), runs the call frame
// instructions of the entry and of its common information entry (CIE), and yields the
// row of the unwind table that holds there: how to compute the canonical frame address
// (CFA) and where the caller's registers are.
//
// Package [unspool/dwarfcfi/elf] finds out where a file holds its sections; [FindSections] and
// [ReadSections] read those with CFI.
//
// The package works on addresses as they stand in the ELF file (virtual addresses before
// any load bias). It knows nothing of processes; [Eval] sees live registers and memory
// only through what its caller hands it.
//
// With a valid .eh_frame_hdr nothing is parsed ahead of time: an FDE is found by binary
// search in the section's bytes as they are, and decoded when it is asked for. Without one
// (static glibc executables) the first question builds an index of 8 bytes an FDE. A
// .debug_frame is asked where .eh_frame has no answer.
//
// The caller owns the bytes of the sections that it hands to [New] and keeps them as long as the
// [Table] is used; a [Table] belongs to one goroutine at a time. A [Row] holds values only and can
// be reused; the expressions that it names point into the section.
//
// Every byte read is untrusted. Bad input yields an error that says where it is bad. It never
// causes a panic, and costs no more time than is linear in the length of the entry that is read.
//
// Specifications: DWARF 5, section 6.4 (call frame information) and 7.24 (its encoding);
// Linux Standard Base Core 5.0, chapters 10.6 (.eh_frame, .eh_frame_hdr, DW_EH_PE_*); the
// psABI supplements for what each register number means.
package dwarfcfi
