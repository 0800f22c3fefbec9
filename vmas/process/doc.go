// Package process reads what the kernel shows of other processes: their text files in a proc file system
// (proc(5)), their memory ([MemoryReader]), and the files that they see and map. All of it needs the
// rights of a debugger (ptrace(2), "Ptrace access mode checking").
//
// It parses nothing, except lines of maps: for a file that is opened by its mapping, and before memory is
// read. [ParseStatus] is for who has been given a text. What it opens belongs to the caller, who closes it.
package process
