// Package dwarfcfi reads the call frame information (CFI) of an ELF image: for a
// program counter it finds the frame description entry (FDE), runs the call frame
// instructions of the entry and of its common information entry (CIE), and yields the
// row of the unwind table that holds there: how to compute the canonical frame address
// (CFA) and where the caller's registers are.
//
// Where a file holds its sections is what package [unspool/dwarfcfi/elf] reads; [FindSections]
// and [ReadSections] take the CFI from there.
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
// Every byte read is untrusted. Bad input yields an error that says where, costs no more
// than time linear in the entry that is read, and never a panic.
//
// Specifications: DWARF 5, section 6.4 (call frame information) and 7.24 (its encoding);
// Linux Standard Base Core 5.0, chapters 10.6 (.eh_frame, .eh_frame_hdr, DW_EH_PE_*); the
// psABI supplements for what each register number means.
package dwarfcfi
