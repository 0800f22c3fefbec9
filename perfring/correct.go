package perfring

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The kernel tells all profilers of a change with one header, to which it adds for each of them in turn. In
// two places it does not take that back before it goes on to the next one (kernel/events/core.c):
//   - perf_event_mmap_output leaves PERF_RECORD_MISC_MMAP_BUILD_ID. While one profiler asks for build IDs,
//     MMAP2 records of others have the bit, too, although they hold device and inode.
//   - perf_event_ksymbol_output, perf_event_bpf_output and perf_event_text_poke_output leave the size of the
//     trailer. All profilers but the first get records that are longer than what was written: they end with
//     what the ring held before, a time that may be anything among it.

// Correct returns r without two mistakes of the kernel: the bit for a build ID in an MMAP2 record that has none, and
// bytes behind the last field that were never written. A correct record is returned as it is. Another one is copied
// to *buf, and is valid until the next call with that buf.
func (f *SampleFormat) Correct(r Record, buf *[]byte) Record {
	const buildID = unix.PERF_RECORD_MISC_MMAP_BUILD_ID
	misc, size := r.Misc(), f.written(r)
	if !f.buildID && r.Type() == RecordMmap2 {
		misc &^= buildID
	}
	if misc == r.Misc() && size == len(r) {
		return r
	}
	*buf = append((*buf)[:0], r[:size]...)
	binary.LittleEndian.PutUint16((*buf)[4:], misc)
	binary.LittleEndian.PutUint16((*buf)[6:], uint16(size))
	return *buf
}

// written is how many bytes of a record the kernel has written.
func (f *SampleFormat) written(r Record) int {
	fields := 0
	switch r.Type() {
	case RecordKsymbol: // addr, len, ksym_type, flags, name
		const name = headerSize + 16
		if len(r) <= name {
			return len(r)
		}
		end := bytes.IndexByte(r[name:], 0)
		if end < 0 {
			return len(r)
		}
		fields = name + words(end+1)
	case RecordBPFEvent: // type, flags, id, tag
		fields = headerSize + 16
	case RecordTextPoke: // addr, old_len, new_len, bytes
		const lengths = headerSize + 8
		if len(r) < lengths+4 {
			return len(r)
		}
		old, now := binary.LittleEndian.Uint16(r[lengths:]), binary.LittleEndian.Uint16(r[lengths+2:])
		fields = lengths + words(4+int(old)+int(now))
	default:
		return len(r)
	}
	return min(fields+f.SampleIDSize(), len(r))
}

// words rounds a number of bytes up to whole words.
func words(n int) int { return (n + 7) &^ 7 }
