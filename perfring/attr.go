package perfring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attr is one event as it was opened.
type Attr struct {
	Name          string // as perf prints it: "cycles:u", "sched:sched_switch"
	PerfEventAttr unix.PerfEventAttr
	IDs           []uint64 // of every descriptor of the event, as PERF_EVENT_IOC_ID gives them
}

// Unwound returns a with the attributes of a recording whose samples went through
// [Format.AppendUnwound]: no REGS_USER and STACK_USER, so that nobody unwinds them again, and a
// callchain with a user part in the stack's stead. An event that copies neither comes back as it
// was. The IDs are shared.
func (a Attr) Unwound() Attr {
	p := &a.PerfEventAttr
	if p.Sample_type&unix.PERF_SAMPLE_STACK_USER != 0 {
		p.Sample_type |= unix.PERF_SAMPLE_CALLCHAIN
		p.Bits &^= unix.PerfBitExcludeCallchainUser
	}
	p.Sample_type &^= unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
	p.Sample_regs_user = 0
	p.Sample_stack_user = 0
	return a
}

// WithBuildIDs returns a with the attributes of a recording whose MMAP2 records went through
// [AppendIdentified]: readers believe in a build ID where the event asks for it. The IDs are shared.
func (a Attr) WithBuildIDs() Attr {
	if a.PerfEventAttr.Bits&unix.PerfBitMmap2 != 0 {
		a.PerfEventAttr.Bits |= bitBuildID
	}
	return a
}

// attrSize is sizeof(struct perf_event_attr) as x/sys knows it. An older kernel takes a larger
// structure than its own as long as what it does not know is zero.
const attrSize = uint32(unsafe.Sizeof(unix.PerfEventAttr{}))
