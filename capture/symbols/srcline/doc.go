// Package srcline turns the addresses of an image into source lines and the functions inlined there, from its
// DWARF debugging information, versions 2 to 5 (https://dwarfstd.org), for all addresses in one pass.
//
// The caller finds the file with the debugging information (the image itself or its separate debug file) and
// says how others that it refers to are opened: the alternate file that dwz made (.gnu_debugaltlink,
// .debug_sup), the .dwo files of split DWARF or the .dwp that packs them. Then
//
//	d, err := srcline.Open(file, srcline.Options{Alt: openAlt, DWO: openDWO, DWP: openDWP})
//	...
//	defer d.Close()
//	err = d.Frames(addrs, func(i int, frames []srcline.Frame) {
//		// frames[0] is the innermost function inlined at addrs[i],
//		// the last one the function that the code belongs to.
//	})
//
// Addresses are virtual addresses of the ELF image, sorted. They name instructions: what is on a stack as a
// return address is the address of the instruction after the call, so less one is what to ask for. Addresses
// that the debugging information does not cover are not yielded. A frame without a Func has a line only, as
// hand-written assembly does; its name is in the symbol table. Names are as the compiler mangled them. The
// name of the outermost frame is the source's, where the symbol table may say more (".cold", ".isra.0"): a
// caller that has both keeps whichever its reports show everywhere else.
//
// The cost follows what is asked for. Of each unit (a compiler's output for one source file) the header and
// the ranges are read. Units without a wanted address are left at that. In the others one walk over the
// debugging information entries (DIEs) finds the functions, without looking into those that have none, and
// one run of the line number program finds the lines. In memory are one unit, its line number program,
// abbreviations and the names found. A section that the file stores compressed is in memory as a whole from
// its first use on.
//
// The files are not trusted. What is wrong in them costs the unit where it is, and comes back as an *Error
// that says where; time is bounded by a multiple of the files' size.
package srcline
