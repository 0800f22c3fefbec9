// Package sandbox gives up the rights of this process, for good and for all of its threads: by a seccomp
// filter, Landlock, capabilities, another user and no_new_privs (seccomp(2), landlock(7), capabilities(7)).
// It owns no memory.
//
// A recording reads what everybody on the machine has written. Once its events and outputs are open and its
// command is started, it needs only memory, what it has open, and the answers of the opener, so it gives up
// everything else.
//
// What reads a recording afterwards ([ConfineReader]) still opens files, in the name of who runs it, and
// writes only to a temporary folder and a cache: its opener makes the outputs.
//
// What this kernel or this build cannot give up is reported.
package sandbox
