package syscap

import (
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Callchain entries from PERF_CONTEXT_MAX (-4095) up are markers: they say of what the addresses after them are. Sysprof knows
// these (linux/perf_event.h).
const (
	contextMax          = ^uint64(4095 - 1)
	contextHypervisor   = ^uint64(32 - 1)
	contextKernel       = ^uint64(128 - 1)
	contextUser         = ^uint64(512 - 1)
	contextUserDeferred = ^uint64(640 - 1) // the user part comes in another record, a cookie follows
	contextGuest        = ^uint64(2048 - 1)
	contextGuestKernel  = ^uint64(2176 - 1)
	contextGuestUser    = ^uint64(2560 - 1)
)

// regIP is PERF_REG_X86_IP (asm/perf_regs.h).
const regIP = 8

// maxAddrs is how many addresses and markers a SAMPLE frame holds.
const maxAddrs = (maxFrame - sampleSize) / 8

// chain turns a sample into w.addrs, leaf first: the addresses that the profile has frames of, and a marker wherever their context
// changes.
func (w *Writer) chain(s *perfring.Sample, frames []int32) {
	w.addrs = w.addrs[:0]
	var last uint64 // the context so far
	add := func(context, addr uint64, frame int32) {
		if context != last {
			w.addrs = append(w.addrs, context)
			last = context
		}
		if !w.options.NoNames {
			addr = w.names.place(w.profile, s.PID, addr, frame)
		}
		w.addrs = append(w.addrs, addr)
	}
	context := modeContext(s.CPUMode())
	left := frames
	for i := 0; i < s.Callchain.Len() && len(left) > 0; i++ {
		ip := s.Callchain.At(i)
		if ip == contextUserDeferred {
			break
		}
		if ip >= contextMax {
			context = knownContext(ip)
			continue
		}
		add(context, ip, left[0])
		left = left[1:]
	}
	if len(left) > 0 { // a frame of the sample itself, which its callchain does not have
		ip, context := s.IP, modeContext(s.CPUMode())
		if len(left) < len(frames) && context != contextUser {
			ip, _ = s.Reg(regIP)
			context = contextUser
		}
		add(context, ip, left[0])
	}
	event := len(w.reader.Events()) > 1
	most := maxAddrs
	if event {
		most -= 2
	}
	if len(w.addrs) > most {
		w.addrs = w.addrs[:most]
		w.cut++
	}
	if event {
		if last != contextUser {
			w.addrs = append(w.addrs, contextUser)
		}
		w.addrs = append(w.addrs, w.names.made(s.PID, ^int32(w.reader.Event(s.ID))))
	}
}

// modeContext is the marker for where the CPU was.
func modeContext(mode uint16) uint64 {
	switch mode {
	case unix.PERF_RECORD_MISC_KERNEL:
		return contextKernel
	case unix.PERF_RECORD_MISC_USER, unix.PERF_RECORD_MISC_CPUMODE_UNKNOWN:
		return contextUser
	}
	return contextGuest
}

// knownContext replaces a marker that Sysprof would take for an address.
func knownContext(marker uint64) uint64 {
	switch marker {
	case contextHypervisor, contextKernel, contextUser, contextGuest, contextGuestKernel, contextGuestUser:
		return marker
	}
	return contextGuest
}
