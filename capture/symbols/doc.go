// Package symbols turns addresses into function names. The names come
//   - for ELF images from their symbol tables: .symtab, or else that of the separate debug file, or else
//     MiniDebugInfo, .dynsym and Go's function table; and from the procedure linkage table;
//   - for the kernel and its modules from /proc/kallsyms;
//   - for the vDSO from the copy in the memory of this process;
//   - for code generated at run time from the jitdump or perf map that the runtime wrote.
//
// A Symbolizer hands out Images. An image is a file as the recording names it, by path and build ID. Its
// table is read at the first address that is looked up in it, so that memory is used only for images that
// were sampled; the Symbolizer owns it. A file on disk that has another build ID than the recorded one is
// another program: it is never used, and Problems names it. If the recording has device and inode instead
// of a build ID, the same is true for a file with other ones (see package fileid). Addresses are file
// offsets, as a mapping gives them; a Table works with virtual addresses of the ELF image, and Table.Vaddr
// converts the former to the latter.
//
// Files come from the sampled system and are not trusted: a bad file loses only its own names, and takes time
// and memory proportional to its size.
//
// Specifications: System V gABI, chapter 4, for symbol tables; the Itanium C++ ABI, Rust RFC 2603 and the D
// ABI for mangled names; tools/perf/Documentation/jit-interface.txt and jitdump-specification.txt in the
// kernel's sources; debug/gosym and runtime/symtab.go for Go's table.
package symbols
