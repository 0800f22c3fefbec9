// Package limits is about what the system lets a process have: memory, open files, threads, processes. Without
// enough of it Go's runtime ends the process with a dump of its state, in the midst of whatever it was doing.
//
// So [Check] looks at the limits before anything is begun. What it does not see, as the runtime cannot even start or
// others take what is left, is told in the same words instead of the dump: see runtime.go. Both ways lead through code
// that allocates nothing.
package limits
