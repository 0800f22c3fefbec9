package perfring

import (
	"golang.org/x/sys/unix"
)

// All records other than samples belong to an event of their own, which counts nothing, and are written to
// a small ring of its own on each CPU. So samples with their stacks cannot take up their room, and each of
// them wakes the reader, so that a file can be opened while the process that maps it still runs. They are
// merged with the samples by time.

// sideBand is the index of that event.
const sideBand = -1

var dummyEvent = Event{Name: "dummy", Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
	ExcludeKernel: true}

// event returns the event with an index.
func (op *opener) event(index int) *Event {
	if index == sideBand {
		return &dummyEvent
	}
	return &op.opts.Events[index]
}

// sideBandAttr returns the attributes for the side-band event. Its records have the same trailer as those
// of the sampled events, so that its IDs can be listed with those of the first sampled event.
func (op *opener) sideBandAttr() unix.PerfEventAttr {
	sampled := op.attr(0)
	a := unix.PerfEventAttr{
		Type: dummyEvent.Type, Size: attrSize, Config: dummyEvent.Config,
		Sample_type: sampled.Sample_type & sampleIDType, Read_format: sampled.Read_format,
		Bits: bitsSideBand | unix.PerfBitDisabled | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
			unix.PerfBitWatermark | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
		Wakeup:  1, // bytes: any record
		Clockid: sampled.Clockid,
	}
	if op.target.Command > 0 {
		a.Bits |= unix.PerfBitEnableOnExec // also where sampled events are enabled later
	}
	if !op.target.AllCPUs {
		a.Bits |= unix.PerfBitInherit // also where sampled events are of single threads
	}
	if sampled.Bits&unix.PerfBitExcludeKernel != 0 {
		a.Bits &^= bitKsymbol | bitBPFEvent // there will be no kernel addresses to look up
	}
	for _, less := range fallbacks[:op.fallbackLevel] {
		less(&a)
	}
	return a
}
