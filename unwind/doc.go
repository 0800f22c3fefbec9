// Package unwind turns one sample's registers and stack copy into the array
// of instruction pointers that the kernel would have written, had the
// program kept frame pointers.
//
// The walk starts at the sampled PC and asks, for each frame, which rule of
// the call frame information (CFI) holds there. A rule says where the
// canonical frame address (CFA: the value of the stack pointer before the
// call) is, and where the caller's registers were saved relative to it; the
// return address is the caller's PC. Rules belong to the ELF image, not to
// the process: an [image.Image] keeps those that were needed, by file offset, four
// bytes each, and forty processes that map libc share them.
//
// Two evaluators give the same answers. The fast one knows PC, SP and BP and
// covers the rules that compilers emit (see [rule.Rule]); the general one knows
// every register and evaluates any CFI row. When the general one needs a
// register that the fast one did not follow, the walk is done again from the
// sampled registers with all of them. Both are for x86-64; the stacks of other
// architectures ([rule.Arch]) are walked by the general one alone.
//
// Rules are those of package rule. Their makers have packages of their own and know nothing of
// walks: asm reads instructions, gotab Go's function table, jit what is known of generated code,
// and image puts them and the CFI of a file together.
//
// What the caller owes: the mappings of the process ([vmas.Space]) and a
// sample's registers and stack. What it gets: the IPs, how each was found,
// and why the walk ended. A walk is complete only when it reached the root.
package unwind
