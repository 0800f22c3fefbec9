// Package debugfile finds the separate debug file of an ELF image: the file with the sections that stripping
// has removed from it (.debug_frame, .symtab, .debug_info).
//
// There are two conventions for its place (GDB manual, "Debugging Information in Separate Files"). By build
// ID: /usr/lib/debug/.build-id/ab/cdef….debug for the build ID abcdef…. By debug link: the image's section
// .gnu_debuglink names a file and gives its CRC-32; the file is in the directory of the image, in .debug
// there, or in the image's directory below /usr/lib/debug.
//
// A debug file of another build would give wrong answers rather than none, so [Find] returns only a file with
// the right build ID, or with the right CRC if there is no build ID. The caller closes it.
package debugfile
