package limits

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// What Go's runtime says on standard error, it says through this variable (runtime/time_nofake.go), so that programs
// can have it said elsewhere. Its value is in the program's data, and is there before the runtime starts.
//
//go:linkname overrideWrite runtime.overrideWrite
var overrideWrite func(fd uintptr, p unsafe.Pointer, n int32) int32 = write

// statusFailure is the exit status for a failure of the program itself.
const statusFailure = 125

// fatal means that the runtime has begun to say what ends the process.
var fatal bool

const (
	fatalError = "fatal error: "
	noMemory   = "there is no more memory"
)

// write writes what the runtime says. If that is that the system does not give it what it needs, it writes one line
// instead, and ends the process. It is called in the midst of the runtime, so it allocates nothing.
//
//go:norace
func write(fd uintptr, p unsafe.Pointer, n int32) int32 {
	said := unsafe.String((*byte)(p), n)
	switch {
	case fd != 2:
	case begins(said, "runtime: failed to create new OS thread"):
		endForTasks()
	case begins(said, "runtime: epollcreate failed"), begins(said, "runtime: eventfd failed"):
		endFor("no more files can be opened", &files)
	case begins(said, "runtime: out of memory: "): // followed by how much was wanted
		endFor(noMemory, &memory, &addresses)
	case said == fatalError:
		fatal = true
		return n
	case fatal:
		fatal = false
		for _, about := range [...]string{"out of memory", "runtime: out of memory", "runtime: cannot allocate memory",
			"failed to reserve page summary memory"} {
			if begins(said, about) {
				endFor(noMemory, &memory, &addresses)
			}
		}
		writeAll(fd, fatalError)
	}
	return writeAll(fd, said)
}

//go:norace
func begins(s, with string) bool { return len(s) >= len(with) && s[:len(with)] == with }

//go:norace
func writeAll(fd uintptr, s string) int32 {
	n, err := sys.Write(int(fd), unsafe.Slice(unsafe.StringData(s), len(s)))
	if err != nil {
		return -1
	}
	return int32(n)
}

// endFor ends the process for want of something, and says which of the limits of it is too low, or what they are.
func endFor(want string, limits ...*resource) {
	dying.add("unspool: ")
	for _, r := range limits {
		if dying.tooLow(r) {
			end()
		}
	}
	dying.add(want)
	before := ": "
	for _, r := range limits {
		if limit := r.limit(); limit != unix.RLIM_INFINITY {
			dying.add(before).limited(r, limit)
			before = ", "
		}
	}
	end()
}

// endForTasks is endFor for threads.
func endForTasks() {
	const few = 8 // other threads may have ended by now
	var said line
	limit, used := said.fewestTasks()
	dying.add("unspool: ")
	switch ofThisUser := ofUser.limit(); {
	case remaining(limit, used) <= few:
		dying.bytes(said.text[:said.n])
		dying.tasksNeeded(used)
	case ofThisUser != unix.RLIM_INFINITY:
		dying.limited(&ofUser, ofThisUser)
		dying.tasksNeeded(0)
	default:
		dying.add("no more threads can be started")
		dying.tasksNeeded(0)
	}
	end()
}

// dying is the last line of the process.
var dying line

func end() {
	dying.add("\n")
	_, _ = sys.Write(2, dying.text[:dying.n])
	sys.Exit(statusFailure)
}
