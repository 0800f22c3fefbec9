// Package session turns records with raw stacks into records with callchains: it follows the address spaces of the
// processes in them, unwinds the stack copy of every sample, splices the result into the sample's callchain and hands
// the record on without registers and stack. The records are specified in include/uapi/linux/perf_event.h and
// perf_event_open(2).
//
//	source ──▶ [Session.Record] ──▶ [Sink]
//	perfring    vmas, unwind         capture/perfdata
//
// A [Session] works alike on records from a live ring and from a file. Stack bytes stay where the kernel put them, in
// the ring, and are overwritten there. What a [Sink] is given is valid for the call only: it copies what it keeps.
package session
