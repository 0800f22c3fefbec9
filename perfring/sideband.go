package perfring

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// The decoders below decode the record that they are named after into the structure that they are given,
// whose slices then point into the record. The encoders append a record with the sample_id trailer of f
// (none without sample_id_all): they are for processes that ran before the recording, for which the kernel
// writes no records. Their only error is [ErrTooLarge]; dst is then returned unchanged.

// Mmap is PERF_RECORD_MMAP.
type Mmap struct {
	Misc      uint16 // PERF_RECORD_MISC_MMAP_DATA: not executable; CPU mode: kernel or user mapping
	PID, TID  uint32
	Addr, Len uint64
	Offset    uint64 // in the file, of Addr, in bytes
	Path      []byte
}

// Mmap2 is PERF_RECORD_MMAP2. A record carries either a build ID or device and inode, never both.
type Mmap2 struct {
	Misc       uint16 // PERF_RECORD_MISC_MMAP_DATA: not executable
	PID, TID   uint32
	Addr, Len  uint64
	Offset     uint64 // in the file, of Addr, in bytes
	Maj, Min   uint32
	Inode      uint64
	Generation uint64
	BuildID    []byte // at most 20 bytes; nil when the record has device and inode
	Prot       uint32 // PROT_*
	Flags      uint32 // MAP_*
	Path       []byte
}

// Comm is PERF_RECORD_COMM: a task's name changed.
type Comm struct {
	PID, TID uint32
	Exec     bool // by execve: the process has a new address space
	Comm     []byte
}

// Task is PERF_RECORD_FORK or PERF_RECORD_EXIT.
type Task struct {
	PID, PPID uint32 // a new thread has PID == PPID
	TID, PTID uint32
	Time      uint64 // nanoseconds of the event's clock
}

// Lost is PERF_RECORD_LOST: records that found no room in the ring.
type Lost struct {
	ID   uint64
	Lost uint64
}

// LostSamples is PERF_RECORD_LOST_SAMPLES: samples that the hardware or the kernel dropped.
type LostSamples struct {
	Lost uint64
}

// maxBuildID is the size of struct perf_record_mmap2's build_id.
const maxBuildID = 20

// mmap2Fields is the size of what an MMAP2 record has between its header and its path.
const mmap2Fields = 64

// DecodeMmap decodes a record of type MMAP.
func DecodeMmap(r Record, m *Mmap) error {
	c, err := body(r, RecordMmap)
	if err != nil {
		return err
	}
	*m = Mmap{Misc: r.Misc()}
	m.PID, m.TID = c.pair()
	m.Addr, m.Len, m.Offset = c.u64(), c.u64(), c.u64()
	m.Path = c.text()
	return c.err(r)
}

// DecodeMmap2 decodes a record of type MMAP2. They are the most frequent ones beside samples: a program
// that reads its data by mapping them makes ten thousands a second. So their fields are not read one by one.
func DecodeMmap2(r Record, m *Mmap2) error {
	if _, err := body(r, RecordMmap2); err != nil {
		return err
	}
	if len(r) < headerSize+mmap2Fields {
		return fmt.Errorf("MMAP2 record of %d bytes: its fields take %d", len(r), headerSize+mmap2Fields)
	}
	b, le := (*[mmap2Fields]byte)(r[headerSize:]), binary.LittleEndian
	m.Misc = r.Misc()
	m.PID, m.TID = le.Uint32(b[0:]), le.Uint32(b[4:])
	m.Addr, m.Len, m.Offset = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	m.Prot, m.Flags = le.Uint32(b[56:]), le.Uint32(b[60:])
	if m.Misc&unix.PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
		size := b[32] // of the build ID, before three reserved bytes
		if size > maxBuildID {
			return fmt.Errorf("MMAP2 record: build ID of %d bytes, at most %d", size, maxBuildID)
		}
		m.Maj, m.Min, m.Inode, m.Generation = 0, 0, 0, 0
		m.BuildID = b[36 : 36+size : 36+size]
	} else {
		m.Maj, m.Min = le.Uint32(b[32:]), le.Uint32(b[36:])
		m.Inode, m.Generation = le.Uint64(b[40:]), le.Uint64(b[48:])
		m.BuildID = nil
	}
	c := cursor{b: r, off: headerSize + mmap2Fields}
	m.Path = c.text()
	return c.err(r)
}

// DecodeComm decodes a record of type COMM.
func DecodeComm(r Record, m *Comm) error {
	c, err := body(r, RecordComm)
	if err != nil {
		return err
	}
	*m = Comm{Exec: r.Misc()&unix.PERF_RECORD_MISC_COMM_EXEC != 0}
	m.PID, m.TID = c.pair()
	m.Comm = c.text()
	return c.err(r)
}

// DecodeTask decodes a record of type FORK or EXIT.
func DecodeTask(r Record, m *Task) error {
	t := RecordFork
	if len(r) >= headerSize && r.Type() == RecordExit {
		t = RecordExit
	}
	c, err := body(r, t)
	if err != nil {
		return err
	}
	m.PID, m.PPID = c.pair()
	m.TID, m.PTID = c.pair()
	m.Time = c.u64()
	return c.err(r)
}

// DecodeLost decodes a record of type LOST.
func DecodeLost(r Record, m *Lost) error {
	c, err := body(r, RecordLost)
	if err != nil {
		return err
	}
	m.ID, m.Lost = c.u64(), c.u64()
	return c.err(r)
}

// DecodeLostSamples decodes a record of type LOST_SAMPLES.
func DecodeLostSamples(r Record, m *LostSamples) error {
	c, err := body(r, RecordLostSamples)
	if err != nil {
		return err
	}
	m.Lost = c.u64()
	return c.err(r)
}

// body starts reading the body of r, which must be of a type.
func body(r Record, t RecordType) (cursor, error) {
	if len(r) < headerSize || r.Type() != t {
		return cursor{}, notOf(r, t)
	}
	return cursor{b: r, off: headerSize}, nil
}

// notOf is the error about a record that is not of a type.
func notOf(r Record, t RecordType) error {
	if len(r) < headerSize {
		return fmt.Errorf("%s record: no header", t)
	}
	return fmt.Errorf("%s record where %s was expected", r.Type(), t)
}

// text reads up to the NUL that the kernel always writes, and stops before it: padding and the
// sample_id trailer follow.
func (c *cursor) text() []byte {
	if c.bad {
		return nil
	}
	n := bytes.IndexByte(c.b[c.off:], 0)
	if n < 0 {
		c.bad = true
		return nil
	}
	return c.bytes(uint64(n))
}

func (c *cursor) err(r Record) error {
	if c.bad {
		return fmt.Errorf("%s record of %d bytes: field at offset %d does not fit", r.Type(), len(r), c.off)
	}
	return nil
}

// AppendMmap appends m as a record of type MMAP.
func AppendMmap(dst []byte, f *SampleFormat, m *Mmap, id *SampleID) ([]byte, error) {
	le := binary.LittleEndian
	start := len(dst)
	dst = appendHeader(dst, RecordMmap, m.Misc)
	dst = le.AppendUint32(le.AppendUint32(dst, m.PID), m.TID)
	dst = le.AppendUint64(dst, m.Addr)
	dst = le.AppendUint64(dst, m.Len)
	dst = le.AppendUint64(dst, m.Offset)
	return f.finishText(dst, start, m.Path, id)
}

// AppendMmap2 appends m as a record of type MMAP2. With a build ID, which is cut to 20 bytes, device
// and inode are left out, and PERF_RECORD_MISC_MMAP_BUILD_ID is set; else that bit is cleared.
func AppendMmap2(dst []byte, f *SampleFormat, m *Mmap2, id *SampleID) ([]byte, error) {
	le := binary.LittleEndian
	start := len(dst)
	misc := m.Misc &^ unix.PERF_RECORD_MISC_MMAP_BUILD_ID
	if len(m.BuildID) > 0 {
		misc |= unix.PERF_RECORD_MISC_MMAP_BUILD_ID
	}
	dst = appendHeader(dst, RecordMmap2, misc)
	dst = le.AppendUint32(le.AppendUint32(dst, m.PID), m.TID)
	dst = le.AppendUint64(dst, m.Addr)
	dst = le.AppendUint64(dst, m.Len)
	dst = le.AppendUint64(dst, m.Offset)
	if len(m.BuildID) > 0 {
		var b [4 + maxBuildID]byte
		b[0] = byte(copy(b[4:], m.BuildID))
		dst = append(dst, b[:]...)
	} else {
		dst = le.AppendUint32(le.AppendUint32(dst, m.Maj), m.Min)
		dst = le.AppendUint64(dst, m.Inode)
		dst = le.AppendUint64(dst, m.Generation)
	}
	dst = le.AppendUint32(le.AppendUint32(dst, m.Prot), m.Flags)
	return f.finishText(dst, start, m.Path, id)
}

// identityAt is the offset in an MMAP2 record of device, inode and generation, or of the build ID
// instead: both take 24 bytes.
const identityAt = headerSize + 32

// AppendIdentified appends a copy of the MMAP2 record r with the build ID id instead of device and inode. A
// record that has a build ID already is copied unchanged, and so is any record if id is too long.
func AppendIdentified(dst []byte, r Record, id []byte) []byte {
	start := len(dst)
	dst = append(dst, r...)
	has := r.Misc()&unix.PERF_RECORD_MISC_MMAP_BUILD_ID != 0
	if has || r.Type() != RecordMmap2 || len(r) < identityAt+4+maxBuildID || len(id) == 0 ||
		len(id) > maxBuildID {
		return dst
	}
	m := dst[start:]
	binary.LittleEndian.PutUint16(m[4:], r.Misc()|unix.PERF_RECORD_MISC_MMAP_BUILD_ID)
	identity := m[identityAt : identityAt+4+maxBuildID]
	clear(identity)
	identity[0] = byte(copy(identity[4:], id))
	return dst
}

// AppendComm appends m as a record of type COMM.
func AppendComm(dst []byte, f *SampleFormat, m *Comm, id *SampleID) ([]byte, error) {
	le := binary.LittleEndian
	start := len(dst)
	var misc uint16
	if m.Exec {
		misc = unix.PERF_RECORD_MISC_COMM_EXEC
	}
	dst = appendHeader(dst, RecordComm, misc)
	dst = le.AppendUint32(le.AppendUint32(dst, m.PID), m.TID)
	return f.finishText(dst, start, m.Comm, id)
}

// AppendLost appends m as a record of type LOST.
func AppendLost(dst []byte, f *SampleFormat, m *Lost, id *SampleID) ([]byte, error) {
	le := binary.LittleEndian
	start := len(dst)
	dst = appendHeader(dst, RecordLost, 0)
	dst = le.AppendUint64(dst, m.ID)
	dst = le.AppendUint64(dst, m.Lost)
	return finishRecord(f.appendSampleID(dst, id), start)
}

// finishText appends the text, padded with NULs to a multiple of 8 bytes as the kernel does it, and the
// trailer, and finishes the record. The text ends at its first NUL.
func (f *SampleFormat) finishText(dst []byte, start int, text []byte, id *SampleID) ([]byte, error) {
	if n := bytes.IndexByte(text, 0); n >= 0 {
		text = text[:n]
	}
	dst = append(dst, text...)
	dst = append(dst, 0)
	for (len(dst)-start)%8 != 0 {
		dst = append(dst, 0)
	}
	return finishRecord(f.appendSampleID(dst, id), start)
}
