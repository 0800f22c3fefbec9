// Package vmas keeps the address space of every process that is sampled, so that an address in a
// sample can be said to lie at an offset of a file.
//
// A space is seeded from /proc for a process that runs already, and then follows the side-band
// records of perf_event_open (include/uapi/linux/perf_event.h): MMAP2, COMM with
// PERF_RECORD_MISC_COMM_EXEC, FORK and EXIT. What it holds is what unwinding needs: executable
// mappings, and the names of threads.
//
// The caller owns the bytes that it hands in: a name in a record is copied, and need not outlive the call. A
// [Space] belongs to its [Table] and is valid until its process ends, a [Mapping] until the table changes.
//
// # What records do not say
//
// The kernel reports executable mappings only, unless mmap_data is asked for. It never reports
// mremap and munmap: a stale mapping stays until another one covers it, its process execs or exits,
// or there are so many of them that the space is read again from /proc. An mprotect that makes
// memory executable arrives as an MMAP2; a record of memory that is not executable takes away what
// was mapped there.
//
// # Seeding without a gap
//
// The events are opened first, /proc is scanned second, and the records are applied third. The
// records that are older than the scan are thus applied to a state that is newer than they are, and
// the result is still right:
//   - MMAP2: whatever covered the range before the scan and is executable has a record of its own
//     that follows. What is not executable leaves a stale mapping where no code runs.
//   - COMM with exec clears the space; every executable mapping of the new image has a record that
//     follows, the vDSO's included.
//   - FORK of a process that the scan found replaces it by a copy of its parent; all its records
//     follow, since they are younger than its birth.
//   - FORK of a thread that the scan found changes nothing. EXIT of a thread that the scan did not find
//     changes nothing; EXIT of a process whose PID the scan found in use by the next one removes
//     that one, whose FORK and everything after it follow.
//
// # The end of a process
//
// The EXIT of the last thread frees the space. The kernels that write it before the task gives up its
// memory (perf_event_exit_task in do_exit) sample the task for a moment longer: the caller that replays
// records holds an EXIT back for that long. The PID is remembered as ended: a record or sample that still
// comes later is ignored and does not cause a read of /proc, until a FORK or an exec says that the PID is in
// use again. The last 4096 PIDs are remembered. When records were lost, [Table.Lost] forgets them, and
// [Table.Sweep] finds the processes whose EXIT was lost.
package vmas
