package syscap

import (
	"unspool/perfring"
)

// maxAddrs is how many addresses and markers a SAMPLE frame holds.
const maxAddrs = (maxFrame - sampleSize) / 8

// chain turns a sample into w.addrs, leaf first: the addresses that the profile has frames of, and a marker
// wherever their context changes.
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
	left := frames
	for context, ip := range s.Addresses {
		if len(left) == 0 {
			break
		}
		add(knownContext(context), ip, left[0])
		left = left[1:]
	}
	if len(left) > 0 { // a frame of the sample itself, which its callchain does not have
		ip, context := s.IP, s.Context()
		if len(left) < len(frames) && context != perfring.ContextUser {
			ip, _ = s.UserIP()
			context = perfring.ContextUser
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
		if last != perfring.ContextUser {
			w.addrs = append(w.addrs, perfring.ContextUser)
		}
		w.addrs = append(w.addrs, w.names.made(s.PID, ^int32(w.reader.Event(s.ID))))
	}
}

// knownContext replaces a marker that Sysprof would take for an address.
func knownContext(marker uint64) uint64 {
	switch marker {
	case perfring.ContextHypervisor, perfring.ContextKernel, perfring.ContextUser, perfring.ContextGuest,
		perfring.ContextGuestKernel, perfring.ContextGuestUser:
		return marker
	}
	return perfring.ContextGuest
}
