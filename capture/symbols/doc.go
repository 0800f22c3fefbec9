// Package symbols turns addresses into function names: those of ELF images from their symbol tables (.symtab,
// else that of the separate debug file, else MiniDebugInfo, .dynsym and Go's function table; and the
// procedure linkage table), those of the kernel and its modules from /proc/kallsyms, those of the vDSO from
// the copy in our own memory, those of code generated at run time from what the runtime wrote: a jitdump or a
// perf map.
//
// A Symbolizer hands out Images. An image is a file as the recording names it, by path and build ID; its
// table is read at the first address that is looked up in it, so that memory follows the images that were
// sampled. A file on disk that has another build ID than the recorded one is another program: it is never
// used, and Problems names it. So is one at the recorded path of which the recording has device and inode
// instead, if these are others' (see package fileid). Addresses are file offsets, as a mapping gives them; a Table works with
// virtual addresses of the ELF image, and Table.Vaddr leads from one to the other.
//
// Files come from the sampled system and are not trusted: whatever they hold costs their own names only, in
// time and memory proportional to their size.
package symbols
