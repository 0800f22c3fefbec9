package perfring

import (
	"os"

	"golang.org/x/sys/unix"
)

// The records about mappings come from an event of their own, which counts nothing, and through a small ring
// of its own on each CPU: samples with their stacks can't crowd them out, and each wakes the reader, so that
// a file is opened while the process that maps it is there. They are merged with all others in the order of
// times.

// mappings stands in the place of an event's index for that event's.
const mappings = -1

var dummyEvent = Event{Name: "dummy", Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
	ExcludeKernel: true}

// event returns the event of an index.
func (op *opener) event(index int) *Event {
	if index == mappings {
		return &dummyEvent
	}
	return &op.opts.Events[index]
}

// mappingsAttr returns what the event for mappings is to be opened with. Its records have the same trailer as
// those of the sampled events, so that its IDs can be listed with those of the first of them.
func (op *opener) mappingsAttr() unix.PerfEventAttr {
	sampled := op.attr(0, true)
	a := unix.PerfEventAttr{
		Type: dummyEvent.Type, Size: attrSize, Config: dummyEvent.Config,
		Sample_type: sampled.Sample_type & sampleIDType, Read_format: sampled.Read_format,
		Bits: bitsMappings | unix.PerfBitDisabled | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
			unix.PerfBitWatermark | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv |
			sampled.Bits&(unix.PerfBitInherit|unix.PerfBitEnableOnExec),
		Wakeup:  1, // bytes: any record
		Clockid: sampled.Clockid,
	}
	for _, less := range fallbacks[:op.fallbackLevel] {
		less(&a)
	}
	return a
}

// mappingsPages is the size of the ring for mappings beside one of so many pages for samples: it holds some
// thousand records, or less where there is little memory to lock.
func mappingsPages(pages int) int {
	return min(max(pages/8, 8), (512<<10)/os.Getpagesize())
}
