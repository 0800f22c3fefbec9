package unwind

// Markers that the kernel puts into callchains (enum perf_callchain_context,
// include/uapi/linux/perf_event.h).
const (
	contextUser     = ^uint64(512 - 1) // PERF_CONTEXT_USER, -512
	contextDeferred = ^uint64(640 - 1) // PERF_CONTEXT_USER_DEFERRED, -640: a cookie, for a user part that follows in a record of its own
)

// Splice appends to dst the kernel's part of a callchain as the kernel gave
// it, then PERF_CONTEXT_USER and the unwound user part, and returns the
// extended slice. at(i) is the i-th of the n entries of the sample's own
// callchain; a user part in it is replaced. With no user frames the marker
// is left out too.
//
// The user part comes last, and nothing behind its marker is taken for another
// marker: it holds words of the stack, of any value.
func Splice(dst []uint64, n int, at func(i int) uint64, user []uint64) []uint64 {
	for i := range n {
		ip := at(i)
		if ip == contextUser || ip == contextDeferred {
			break
		}
		dst = append(dst, ip)
	}
	if len(user) == 0 {
		return dst
	}
	return append(append(dst, contextUser), user...)
}
