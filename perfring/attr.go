package perfring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attr is an event with the attributes that it was opened with.
type Attr struct {
	Name          string // as perf prints it: "cycles:u", "sched:sched_switch"
	PerfEventAttr unix.PerfEventAttr
	IDs           []uint64 // of every descriptor of the event, as PERF_EVENT_IOC_ID gives them
}

// Unwound returns a with the attributes of a recording whose samples went through
// [SampleFormat.AppendUnwound]: without REGS_USER and STACK_USER, so that no tool unwinds the samples again,
// and with a callchain whose user part replaces the stack. An event that has neither is returned
// unchanged. The IDs are shared.
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
// [AppendIdentified]: readers use a build ID only if the event asks for it. The IDs are shared.
func (a Attr) WithBuildIDs() Attr {
	if a.PerfEventAttr.Bits&unix.PerfBitMmap2 != 0 {
		a.PerfEventAttr.Bits |= bitBuildID
	}
	return a
}

// attrSize is sizeof(struct perf_event_attr) as x/sys knows it. An older kernel accepts a larger
// structure than its own as long as the fields that it does not know are zero.
const attrSize = uint32(unsafe.Sizeof(unix.PerfEventAttr{}))
