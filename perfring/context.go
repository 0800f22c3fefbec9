package perfring

import "golang.org/x/sys/unix"

// Entries of a callchain from ContextMax up are markers (enum perf_callchain_context in linux/perf_event.h):
// each says whose code the entries after it are: the kernel's, the user's or a guest's.
const (
	ContextMax          = ^uint64(4095 - 1)
	ContextHypervisor   = ^uint64(32 - 1)
	ContextKernel       = ^uint64(128 - 1)
	ContextUser         = ^uint64(512 - 1)
	ContextUserDeferred = ^uint64(640 - 1) // the cookie of a later record, with the user part, follows
	ContextGuest        = ^uint64(2048 - 1)
	ContextGuestKernel  = ^uint64(2176 - 1)
	ContextGuestUser    = ^uint64(2560 - 1)
)

// Context returns the marker for the mode that the CPU was in.
func (s *Sample) Context() uint64 {
	switch s.CPUMode() {
	case unix.PERF_RECORD_MISC_KERNEL:
		return ContextKernel
	case unix.PERF_RECORD_MISC_USER, unix.PERF_RECORD_MISC_CPUMODE_UNKNOWN:
		return ContextUser
	}
	return ContextGuest
}

// Addresses calls yield with each address of the callchain and the marker that says whose code it is, until
// yield returns false. Zeros at the end are left out: there the kernel's walk along frame pointers failed. No
// entry behind the marker of the user part counts as a marker, as that part has words of the stack, which
// can have any value.
func (s *Sample) Addresses(yield func(context, ip uint64) bool) {
	n := s.Callchain.Len()
	for n > 0 && s.Callchain.At(n-1) == 0 {
		n--
	}
	context, user := s.Context(), false
	for i := range n {
		ip := s.Callchain.At(i)
		switch {
		case user || ip < ContextMax:
			if !yield(context, ip) {
				return
			}
		case ip == ContextUserDeferred:
			return // only the cookie follows
		default:
			context, user = ip, ip == ContextUser
		}
	}
}

// UserPart finds the user part of the callchain, which comes last: its first entry is behind the marker, and
// before counts the addresses that precede that. Without a user part, first is the length of the chain.
func (s *Sample) UserPart() (first, before int) {
	for i := range s.Callchain.Len() {
		switch ip := s.Callchain.At(i); {
		case ip == ContextUser:
			return i + 1, before
		case ip < ContextMax:
			before++
		}
	}
	return s.Callchain.Len(), before
}
