// Package sysprofd starts a program in the place of sysprof-live-unwinder and treats it as Sysprof does, for
// tests: Sysprof opens events by sysprofd, its service, which starts the program with their descriptors;
// Sysprof enables them at once, reads the program's frames from a pipe, and at the end writes to an eventfd
// and closes the pipe in the next statement.
//
// Facts are from Sysprof 48 to 51: sysprof-user-sampler.c, sysprof-muxer-source.c, ipc-unwinder-impl.c and
// sysprof-capture-types.h.
package sysprofd
