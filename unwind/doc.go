// Package unwind turns one sample's registers and stack copy into the array
// of instruction pointers that the kernel would have written, had the
// program kept frame pointers.
//
// The walk starts at the sampled PC and asks, for each frame, which rule of
// the call frame information (CFI) holds there. A rule says where the
// canonical frame address (CFA: the value of the stack pointer before the
// call) is, and where the caller's registers were saved relative to it; the
// return address is the caller's PC. Rules belong to the ELF image, not to
// the process: a [module.Module] keeps those that were needed, by file offset, four
// bytes each, and forty processes that map libc share them.
//
// Two evaluators give the same answers. The fast one knows PC, SP and BP and
// covers the rules that compilers emit (see [rule.Rule]); the general one knows
// every register and evaluates any CFI row. When the general one needs a
// register that the fast one did not follow, the walk is done again from the
// sampled registers with all of them. Both are for x86-64; the stacks of other
// architectures ([rule.Arch]) are walked by the general one alone.
//
// CFI is specified in DWARF 5, § 6.4, and in the System V ABI, AMD64 supplement, § 4.2.4. Rules have a
// package of their own, and so has each of their sources, which know nothing of walks: asm reads
// instructions, gotab Go's function table, jit what is known of generated code, and image puts these and the
// CFI of a file together. The walk asks for them by the interfaces of package module: another store of files than
// image's is one that implements these.
//
// The caller provides the mappings of the process ([vmas.Space]) and a sample's registers and stack. It gets
// the IPs, how each was found, and why the walk ended. A walk is complete only if it reached the root. A
// [Result] belongs to its Unwinder and is valid until the next walk; the copy of the stack is read in place,
// and has to stay there for as long as the result of its walk is in use.
package unwind
