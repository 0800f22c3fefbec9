package perfring

// Entries of a callchain from ContextMax up are markers (enum perf_callchain_context in linux/perf_event.h):
// each says to whose code the entries after it belong.
const (
	ContextMax          = ^uint64(4095 - 1)
	ContextHypervisor   = ^uint64(32 - 1)
	ContextKernel       = ^uint64(128 - 1)
	ContextUser         = ^uint64(512 - 1)
	ContextUserDeferred = ^uint64(640 - 1) // a cookie follows, of the record that brings the user part later
	ContextGuest        = ^uint64(2048 - 1)
	ContextGuestKernel  = ^uint64(2176 - 1)
	ContextGuestUser    = ^uint64(2560 - 1)
)

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
