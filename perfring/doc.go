// Package perfring opens perf events, maps their ring buffers and hands out the PERF_RECORD_*
// records in them, in place and in the order of their time stamps.
//
// The words used here are those of perf_event_open(2) and of the kernel's
// include/uapi/linux/perf_event.h:
//
//   - a record is a header (type, misc, size) and a body; a sample is the record of type SAMPLE;
//   - an event is one perf_event_attr, opened on many tasks and CPUs: one descriptor each;
//   - the sample_id trailer is the copy of TID, TIME, ID, STREAM_ID, CPU and IDENTIFIER that
//     sample_id_all puts behind every record that is not a sample;
//   - side-band records are those that tell about address spaces and tasks (MMAP2, COMM, FORK, EXIT).
//
// The main path, from top to bottom: [ParseEvents] turns names into events, [Open] opens them on a
// [Target] and maps one ring per CPU, [Source.Wait] sleeps until there is something to read,
// [Source.Drain] merges the rings by time and calls back with each [Record], and [SampleFormat.Sample]
// decodes a sample without copying it. A perf.data file holds the same bytes, so [CheckRecord] and
// [SampleFormat] read those files too.
//
// Everything is little-endian: this is the byte order of the machines that unspool runs on.
//
// The kernel owns the memory of the rings. A Record, and every slice that points into one, is valid only
// during the call that hands it out: afterwards the kernel writes there again. Encoders append to the
// caller's slice.
package perfring
