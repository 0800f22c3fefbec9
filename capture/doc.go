// Package capture is the recording: it takes PERF_RECORD_* bytes from a
// source, keeps the address spaces that they tell of, unwinds the stack copy
// of every sample, splices the result into the sample's callchain and hands
// the record on without registers and stack.
//
//	source ──▶ [Session.Record] ──▶ [Sink]
//	perfring    vmas, unwind         capture/perfdata
//
// A [Session] is the same whether the records come from a live ring or from
// a file. [Record] is the live case, from opening the events to the last
// feature section. Stack bytes stay where the kernel put them, in the ring,
// and are overwritten there.
package capture
