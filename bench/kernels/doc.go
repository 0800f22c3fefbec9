// Command kernels boots kernels of Debian's releases in qemu, each with a root of its release, and runs TestKernel of
// cmd/unspool there; before, on this machine's kernel in the same roots. It has this machine record programs of these
// roots, too, and writes a table of what was tried.
//
// It ends with status 1 if something does not work, and with 2 if roots cannot be had.
package main
