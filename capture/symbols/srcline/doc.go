// Package srcline turns the addresses of an image into source lines and the functions inlined there, from its
// DWARF debugging information, versions 2 to 5 (https://dwarfstd.org), for all addresses in one pass.
//
// The caller finds the file with the debugging information (the image itself or its separate debug file), and
// supplies functions that open the files to which it refers: the alternate file that dwz made
// (.gnu_debugaltlink, .debug_sup), and the .dwo files of split DWARF or the .dwp that packs them. Then
//
//	d, err := srcline.Open(file, srcline.Options{Alt: openAlt, DWO: openDWO, DWP: openDWP})
//	...
//	defer d.Close()
//	err = d.Frames(addrs, func(i int, frames []srcline.Frame) {
//		// frames[0] is the innermost function inlined at addrs[i],
//		// the last one the function that the code belongs to.
//	})
//
// Addresses are virtual addresses of the ELF image, sorted. They are those of instructions: a return
// address is that of the instruction after the call, so the caller has to subtract one. Addresses that the
// debugging information does not cover are not yielded. A frame without a Func has a line only, as
// hand-written assembly does; its name is in the symbol table. Names are as the compiler mangled them. The
// name of the outermost frame is that in the source; the symbol table may say more (".cold", ".isra.0"). A
// caller that has both chooses the one that it uses everywhere else.
//
// The cost depends on the addresses. Of each unit (a compiler's output for one source file) the header and
// the ranges are read; of a unit without any of the addresses, nothing more. In the others, one walk over
// the debugging information entries (DIEs) finds the functions, without reading entries that contain none,
// and one run of the line number program finds the lines. One unit, its line number program, abbreviations
// and the names found are in memory. A compressed section is in memory as a whole after its first use. The
// caller owns the files; the memory belongs to Data.
//
// The files are not trusted. For a bad unit, only its own addresses are lost, and an *Error says where it is
// bad. Time is bounded by a multiple of the files' size.
package srcline
