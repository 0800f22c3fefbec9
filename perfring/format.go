package perfring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

var (
	// ErrTooLarge means that a record would not fit into the 16 bits of its header's size.
	ErrTooLarge = errors.New("larger than 65535 bytes")
	// ErrNoSampleID means that a record has no sample_id trailer: the event was opened without
	// sample_id_all, or the record is one of the perf tool's own.
	ErrNoSampleID = errors.New("record has no sample_id")
	// ErrUnknownFormat means that sample_type or read_format has bits that this package does not know,
	// so that it does not know where any field is.
	ErrUnknownFormat = errors.New("unknown bits in sample_type or read_format")
)

const (
	knownSampleType = unix.PERF_SAMPLE_MAX - 1
	knownReadFormat = unix.PERF_FORMAT_MAX - 1

	// sampleIDType are the bits of sample_type that make up struct sample_id.
	sampleIDType = unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_ID |
		unix.PERF_SAMPLE_STREAM_ID | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_IDENTIFIER
)

// SampleFormat is how the samples and the sample_id trailers of one event are laid out. It is made from
// the event's perf_event_attr and never changes. The zero SampleFormat is that of an event whose samples
// are empty and whose other records have no trailer.
type SampleFormat struct {
	sampleType  uint64
	readFormat  uint64
	branchType  uint64 // branch_sample_type
	regsUser    uint64 // sample_regs_user
	regsIntr    uint64 // sample_regs_intr
	period      uint64 // of all samples, 0 if each has its own
	sampleIDAll bool
	buildID     bool // MMAP2 records may have build IDs
}

// NewFormat returns the layout of the records of an event that was opened with attr.
func NewFormat(attr *unix.PerfEventAttr) SampleFormat {
	f := SampleFormat{
		sampleType:  attr.Sample_type,
		readFormat:  attr.Read_format,
		branchType:  attr.Branch_sample_type,
		regsUser:    attr.Sample_regs_user,
		regsIntr:    attr.Sample_regs_intr,
		sampleIDAll: attr.Bits&unix.PerfBitSampleIDAll != 0,
		buildID:     attr.Bits&bitBuildID != 0,
	}
	if attr.Sample_type&unix.PERF_SAMPLE_PERIOD == 0 && attr.Bits&unix.PerfBitFreq == 0 {
		f.period = attr.Sample
	}
	return f
}

// sameLayout reports whether every field is at the same place in f and g.
func (f SampleFormat) sameLayout(g SampleFormat) bool {
	f.buildID, f.period = g.buildID, g.period
	return f == g
}

// AllowBuildIDs returns f for records that may belong to another event, which asks for build IDs: perf asks
// for them in one event only, and the records that perf makes itself belong to no event.
func (f SampleFormat) AllowBuildIDs() SampleFormat {
	f.buildID = true
	return f
}

// AsksBuildIDs reports whether an MMAP2 record of the event may have a build ID.
func (f *SampleFormat) AsksBuildIDs() bool { return f.buildID }

// SampleType returns the PERF_SAMPLE_* bits.
func (f *SampleFormat) SampleType() uint64 { return f.sampleType }

// RegsUser returns the mask of the user registers in a sample, in the numbering of the
// architecture's asm/perf_regs.h.
func (f *SampleFormat) RegsUser() uint64 { return f.regsUser }

// SampleIDSize returns the size in bytes of the sample_id trailer, 0 without sample_id_all.
func (f *SampleFormat) SampleIDSize() int {
	if !f.sampleIDAll {
		return 0
	}
	return 8 * bits.OnesCount64(f.sampleType&sampleIDType)
}

// HasStack reports whether samples hold a copy of the user stack.
func (f *SampleFormat) HasStack() bool { return f.sampleType&unix.PERF_SAMPLE_STACK_USER != 0 }

// HasUser reports whether samples hold user registers or a copy of the user stack.
func (f *SampleFormat) HasUser() bool {
	return f.sampleType&(unix.PERF_SAMPLE_REGS_USER|unix.PERF_SAMPLE_STACK_USER) != 0
}

// Unwound returns the format of the samples that [SampleFormat.AppendUnwound] writes: the same without
// REGS_USER and STACK_USER, and with CALLCHAIN.
func (f *SampleFormat) Unwound() SampleFormat {
	u := *f
	u.sampleType &^= unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
	if f.HasStack() {
		u.sampleType |= unix.PERF_SAMPLE_CALLCHAIN
	}
	u.regsUser = 0
	return u
}

// Time returns the time stamp of a record, in nanoseconds of the event's clock. ok is false when the
// record has none.
func (f *SampleFormat) Time(r Record) (t uint64, ok bool) {
	if f.sampleType&unix.PERF_SAMPLE_TIME == 0 {
		return 0, false
	}
	var off int
	if r.Type() == RecordSample {
		const before = unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID
		off = headerSize + 8*bits.OnesCount64(f.sampleType&before)
	} else {
		if !f.sampleIDAll || r.Type() >= firstUserType {
			return 0, false
		}
		const fromTime = sampleIDType &^ unix.PERF_SAMPLE_TID
		off = f.written(r) - 8*bits.OnesCount64(f.sampleType&fromTime)
	}
	if off < headerSize || off+8 > len(r) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(r[off:]), true
}

// CPU returns the CPU that a record other than a sample was written on. ok is false when the record
// does not say.
func (f *SampleFormat) CPU(r Record) (cpu uint32, ok bool) {
	if f.sampleType&unix.PERF_SAMPLE_CPU == 0 || !f.sampleIDAll || r.Type() >= firstUserType ||
		r.Type() == RecordSample {
		return 0, false
	}
	off := f.written(r) - 8*bits.OnesCount64(f.sampleType&(unix.PERF_SAMPLE_CPU|unix.PERF_SAMPLE_IDENTIFIER))
	if off < headerSize {
		return 0, false
	}
	return binary.LittleEndian.Uint32(r[off:]), true
}

// ID returns the ID of the event that a record belongs to. With IDENTIFIER in sample_type, the
// place of the ID does not depend on any other field, so that the format of one event finds the ID
// in the records of all. ok is false when the record has none.
func (f *SampleFormat) ID(r Record) (id uint64, ok bool) {
	sample := r.Type() == RecordSample
	if !sample && (!f.sampleIDAll || r.Type() >= firstUserType) {
		return 0, false
	}
	var off int
	switch {
	case f.sampleType&unix.PERF_SAMPLE_IDENTIFIER != 0 && sample:
		off = headerSize
	case f.sampleType&unix.PERF_SAMPLE_IDENTIFIER != 0:
		off = f.written(r) - 8
	case f.sampleType&unix.PERF_SAMPLE_ID == 0:
		return 0, false
	case sample:
		const before = unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_ADDR
		off = headerSize + 8*bits.OnesCount64(f.sampleType&before)
	default:
		const fromID = unix.PERF_SAMPLE_ID | unix.PERF_SAMPLE_STREAM_ID | unix.PERF_SAMPLE_CPU
		off = f.written(r) - 8*bits.OnesCount64(f.sampleType&fromID)
	}
	if off < headerSize || off+8 > len(r) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(r[off:]), true
}

// SampleID is struct sample_id, the trailer of records that are not samples. Fields that the format
// does not have are 0.
type SampleID struct {
	PID, TID uint32
	Time     uint64 // nanoseconds of the event's clock
	ID       uint64 // of the event, as PERF_EVENT_IOC_ID gives it
	StreamID uint64 // differs from ID for inherited events
	CPU      uint32
}

// SampleID decodes the trailer of a record that is not a sample. It returns [ErrNoSampleID] when the
// record has none.
func (f *SampleFormat) SampleID(r Record, id *SampleID) error {
	*id = SampleID{}
	t := r.Type()
	if !f.sampleIDAll || t >= firstUserType || t == RecordSample {
		return ErrNoSampleID
	}
	size, end := f.SampleIDSize(), f.written(r)
	if end-headerSize < size {
		return fmt.Errorf("%s record of %d bytes: no room for a sample_id of %d", t, end, size)
	}
	c := cursor{b: r, off: end - size}
	if f.sampleType&unix.PERF_SAMPLE_TID != 0 {
		id.PID, id.TID = c.pair()
	}
	if f.sampleType&unix.PERF_SAMPLE_TIME != 0 {
		id.Time = c.u64()
	}
	if f.sampleType&unix.PERF_SAMPLE_ID != 0 {
		id.ID = c.u64()
	}
	if f.sampleType&unix.PERF_SAMPLE_STREAM_ID != 0 {
		id.StreamID = c.u64()
	}
	if f.sampleType&unix.PERF_SAMPLE_CPU != 0 {
		id.CPU, _ = c.pair()
	}
	if f.sampleType&unix.PERF_SAMPLE_IDENTIFIER != 0 {
		id.ID = c.u64()
	}
	return nil
}

// appendSampleID appends the trailer, nothing without sample_id_all.
func (f *SampleFormat) appendSampleID(dst []byte, id *SampleID) []byte {
	if !f.sampleIDAll {
		return dst
	}
	le := binary.LittleEndian
	if f.sampleType&unix.PERF_SAMPLE_TID != 0 {
		dst = le.AppendUint32(le.AppendUint32(dst, id.PID), id.TID)
	}
	if f.sampleType&unix.PERF_SAMPLE_TIME != 0 {
		dst = le.AppendUint64(dst, id.Time)
	}
	if f.sampleType&unix.PERF_SAMPLE_ID != 0 {
		dst = le.AppendUint64(dst, id.ID)
	}
	if f.sampleType&unix.PERF_SAMPLE_STREAM_ID != 0 {
		dst = le.AppendUint64(dst, id.StreamID)
	}
	if f.sampleType&unix.PERF_SAMPLE_CPU != 0 {
		dst = le.AppendUint64(dst, uint64(id.CPU))
	}
	if f.sampleType&unix.PERF_SAMPLE_IDENTIFIER != 0 {
		dst = le.AppendUint64(dst, id.ID)
	}
	return dst
}

// cursor reads the fields of a record one by one. Once a field does not fit, bad is set, the offset
// stays and every further field reads as zero, so that callers can check once, at the end.
type cursor struct {
	b   []byte
	off int
	bad bool
}

func (c *cursor) u32() uint32 {
	if c.bad || len(c.b)-c.off < 4 {
		c.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint32(c.b[c.off:])
	c.off += 4
	return v
}

func (c *cursor) u64() uint64 {
	if c.bad || len(c.b)-c.off < 8 {
		c.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(c.b[c.off:])
	c.off += 8
	return v
}

func (c *cursor) pair() (a, b uint32) {
	v := c.u64()
	return uint32(v), uint32(v >> 32)
}

// bytes takes n bytes; n is untrusted and may be anything.
func (c *cursor) bytes(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)-c.off) {
		c.bad = true
		return nil
	}
	v := c.b[c.off : c.off+int(n) : c.off+int(n)]
	c.off += int(n)
	return v
}

// words takes n times size bytes; n is untrusted.
func (c *cursor) words(n, size uint64) Words {
	if n > MaxRecordSize {
		c.bad = true
		return nil
	}
	return Words(c.bytes(n * size))
}
