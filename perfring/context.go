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
