// Package perfdata writes and reads perf.data: the recordings of the Linux perf tool.
//
// A recording is a run of PERF_RECORD_* structures as the kernel makes them (the data section),
// together with what is needed to read them: the attributes of the events (struct perf_event_attr)
// with the IDs that the kernel gave each of them, and features, which are notes about the machine,
// the command and the files that were mapped.
//
// There are two layouts. A file starts with a header that says where the attributes and the
// data are; a table right behind the data says where the features are:
//
//	header | IDs | attributes | data: records … | feature table | features …
//
// A pipe starts with a header of 16 bytes. Attributes and features are records of their own,
// numbered from 64 (enum perf_user_event_type) because the kernel never makes these:
//
//	header | HEADER_ATTR … HEADER_FEATURE … | records …
//
// The records of one CPU are almost in the order of time; records of different CPUs are in no order. A
// FINISHED_ROUND record says that all records after it are later than those before the previous
// FINISHED_ROUND, so that a reader can sort within bounded memory.
//
// The formats are specified in the kernel's tools/perf/Documentation/perf.data-file-format.txt
// and include/uapi/linux/perf_event.h, and by tools/perf/util/header.c and session.c.
//
// [Writer] writes recordings with callchains, never with registers or stacks. [Reader] reads any
// little-endian recording, and trusts nothing in it.
//
// A Writer copies what it is given. A record that a Reader returns belongs to the Reader, and is valid until
// the next call.
package perfdata
