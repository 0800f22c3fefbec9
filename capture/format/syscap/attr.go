package syscap

import (
	"math/bits"

	"golang.org/x/sys/unix"
)

// regsSysprof is the mask of the user registers that Sysprof samples on x86-64 (enum perf_event_x86_regs):
// AX, BX, CX, DX, SI, DI, BP, SP, IP and R8 to R15.
const regsSysprof = 0xff01ff

// Attr is with what attributes Sysprof 48 to 51 opens the events whose descriptors sysprof-live-unwinder
// gets, as far as they say how records are laid out; a descriptor does not tell. stackSize is the size of the
// copy of each stack in bytes, 0 for events that copy none.
func Attr(stackSize int) unix.PerfEventAttr {
	a := unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_IDENTIFIER,
		Bits: unix.PerfBitDisabled | unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitTask |
			unix.PerfBitExcludeIdle | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID,
		Wakeup:  149,
		Clockid: unix.CLOCK_MONOTONIC,
	}
	if stackSize > 0 {
		a.Sample_type |= unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
		a.Sample_regs_user, a.Sample_stack_user = regsSysprof, uint32(stackSize)
	}
	return a
}

const (
	leastRing = 8 << 20
	// ringSamples is how many samples a ring holds: Sysprof takes a thousand a second on each CPU, and enables
	// the events while the program that reads the rings begins.
	ringSamples = 512
)

// RingSize is the size in bytes of the ring for each of the events that Attr describes, a power of two.
func RingSize(stackSize int) int {
	return max(leastRing, 1<<bits.Len(uint(max(1, ringSamples*stackSize)-1)))
}
