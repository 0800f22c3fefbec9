package unwind

// Markers that the kernel puts into callchains (enum perf_callchain_context,
// include/uapi/linux/perf_event.h).
const (
	contextUser     = ^uint64(512 - 1)  // PERF_CONTEXT_USER, -512
	contextDeferred = ^uint64(640 - 1)  // PERF_CONTEXT_USER_DEFERRED, -640: a cookie, for a user part that follows in a record of its own
	contextMax      = ^uint64(4095 - 1) // PERF_CONTEXT_MAX, -4095: all markers are at or above it
)

// Splice appends to dst the kernel's part of a callchain as the kernel gave
// it, then PERF_CONTEXT_USER and the unwound user part, and returns the
// extended slice. at(i) is the i-th of the n entries of the sample's own
// callchain. Its user parts are left out, wherever they are: the unwound one
// replaces them. With no user frames the marker is left out too.
func Splice(dst []uint64, n int, at func(i int) uint64, user []uint64) []uint64 {
	inUser := false
	for i := range n {
		ip := at(i)
		if ip >= contextMax {
			inUser = ip == contextUser || ip == contextDeferred
		}
		if !inUser {
			dst = append(dst, ip)
		}
	}
	if len(user) == 0 {
		return dst
	}
	return append(append(dst, contextUser), user...)
}
