// Package perfdata writes and reads perf.data: the recordings of the Linux perf tool.
//
// A recording is a run of PERF_RECORD_* structures as the kernel makes them (the data
// section), in the company of what is needed to understand them: the attributes of the events
// (struct perf_event_attr) with the IDs that the kernel gave each of them, and features, which
// are notes about the machine, the command and the files that were mapped.
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
// Records of one CPU are almost in the order of time; between CPUs there is none. A
// FINISHED_ROUND record says that whatever follows is later than what came before the
// FINISHED_ROUND before it, so that a reader can sort within bounded memory.
//
// The formats are specified in the kernel's tools/perf/Documentation/perf.data-file-format.txt
// and include/uapi/linux/perf_event.h, and by tools/perf/util/header.c and session.c.
//
// [Writer] writes recordings that carry callchains, never registers or stacks. [Reader] reads any
// little-endian recording and takes nothing in it for granted.
//
// What a Writer is given is copied. A record that a Reader returns is the Reader's and valid until the next
// one is asked for.
package perfdata
