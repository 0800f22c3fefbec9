// Package vdso reads the image of the vDSO (vdso(7)): the code that the kernel maps into each
// process, which is in no file. It is an ELF shared object. The package owns the bytes that it
// returns: callers share them and must not change them.
package vdso
