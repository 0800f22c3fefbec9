package perfring

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Sample is a decoded PERF_RECORD_SAMPLE. Fields that the format does not have are zero, but for the period
// of an event that has a fixed one. The slices point into the record and are valid as long as it is.
type Sample struct {
	Misc uint16 // of the header; PERF_RECORD_MISC_CPUMODE_MASK selects the mode of the CPU

	ID       uint64 // of the event: IDENTIFIER or ID
	IP       uint64
	PID, TID uint32
	Time     uint64 // nanoseconds of the event's clock
	Addr     uint64
	StreamID uint64
	CPU      uint32
	Period   uint64

	Read []byte // struct read_format, not decoded further

	Callchain Words // addresses and PERF_CONTEXT_* markers, leaf first

	Raw []byte // for tracepoints: the fields as events/GROUP/NAME/format lays them out

	BranchHWIndex  uint64
	Branches       Words // from, to, flags: three words for each branch, latest first
	BranchCounters Words // one word for each branch

	RegsABI  uint64 // PERF_SAMPLE_REGS_ABI_*; NONE for a task without a user part
	RegsMask uint64 // which registers Regs holds; 0 with REGS_ABI_NONE
	Regs     Words  // in the order of the bits in RegsMask

	// Stack is the valid part of the copy of the user stack, from the user SP upwards. StackSize is
	// how many bytes were reserved for it, DynSize how many of them the kernel could read, which is
	// len(Stack). All are 0 if nothing was copied. With DynSize == StackSize the stack may go on.
	Stack     []byte
	StackSize uint64
	DynSize   uint64

	Weight       uint64
	DataSrc      uint64
	Transaction  uint64
	IntrABI      uint64 // as RegsABI, RegsMask and Regs, for REGS_INTR
	IntrMask     uint64
	RegsIntr     Words
	PhysAddr     uint64
	Cgroup       uint64
	DataPageSize uint64
	CodePageSize uint64
	Aux          []byte

	// Offsets in the record of the parts that AppendUnwound leaves out or replaces.
	chainStart, chainEnd, userStart, userEnd, end int
}

// CPUMode returns the mode that the CPU was in: PERF_RECORD_MISC_KERNEL, _USER, ….
func (s *Sample) CPUMode() uint16 { return s.Misc & unix.PERF_RECORD_MISC_CPUMODE_MASK }

// Len returns the size in bytes of the header and the fields: in records that the kernel makes, this is the
// size of the record.
func (s *Sample) Len() int { return s.end }

// Reg returns user register reg, in the numbering of the architecture's asm/perf_regs.h. ok is
// false when the sample does not have it.
func (s *Sample) Reg(reg uint) (v uint64, ok bool) {
	if reg >= 64 || s.RegsMask&(1<<reg) == 0 {
		return 0, false
	}
	i := bits.OnesCount64(s.RegsMask & (1<<reg - 1))
	if i >= s.Regs.Len() {
		return 0, false
	}
	return s.Regs.At(i), true
}

// UserIP returns the instruction pointer of the task's user code, on x86.
func (s *Sample) UserIP() (ip uint64, ok bool) {
	const regIP = 8 // PERF_REG_X86_IP (asm/perf_regs.h)
	return s.Reg(regIP)
}

// Sample decodes r, a record of type SAMPLE, into s. It allocates nothing but errors: every slice
// in s points into r. After an error, s must not be used.
func (f *SampleFormat) Sample(r Record, s *Sample) error {
	if len(r) < headerSize || r.Type() != RecordSample {
		return fmt.Errorf("not a SAMPLE record")
	}
	if f.sampleType&^knownSampleType != 0 || f.readFormat&^knownReadFormat != 0 {
		return fmt.Errorf("sample_type %#x, read_format %#x: %w", f.sampleType, f.readFormat, ErrUnknownFormat)
	}
	end, ok := f.decode(r, s, true)
	if (!ok || end != len(r)) && s.Branches == nil && f.hasHWIndex() {
		// perf_output_sample() leaves hw_idx out if the event has no branch stack at all, and
		// writes it if the stack is empty. nr is 0 in both cases, so only the size shows which it is.
		if e, o := f.decode(r, s, false); o && e == len(r) {
			return nil
		}
		end, ok = f.decode(r, s, true)
	}
	if !ok {
		return fmt.Errorf("SAMPLE record of %d bytes: field at offset %d does not fit (sample_type %#x)",
			len(r), end, f.sampleType)
	}
	return nil
}

func (f *SampleFormat) hasHWIndex() bool {
	return f.sampleType&unix.PERF_SAMPLE_BRANCH_STACK != 0 && f.branchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0
}

// decode goes through the fields in the order of the kernel's perf_output_sample(). It returns
// the offset behind the last field that fits, and whether all fields fit.
func (f *SampleFormat) decode(r Record, s *Sample, hwIndex bool) (end int, ok bool) {
	*s = Sample{Misc: r.Misc(), Period: f.period}
	t := f.sampleType
	c := cursor{b: r, off: headerSize}

	if t&unix.PERF_SAMPLE_IDENTIFIER != 0 {
		s.ID = c.u64()
	}
	if t&unix.PERF_SAMPLE_IP != 0 {
		s.IP = c.u64()
	}
	if t&unix.PERF_SAMPLE_TID != 0 {
		s.PID, s.TID = c.pair()
	}
	if t&unix.PERF_SAMPLE_TIME != 0 {
		s.Time = c.u64()
	}
	if t&unix.PERF_SAMPLE_ADDR != 0 {
		s.Addr = c.u64()
	}
	if t&unix.PERF_SAMPLE_ID != 0 {
		s.ID = c.u64()
	}
	if t&unix.PERF_SAMPLE_STREAM_ID != 0 {
		s.StreamID = c.u64()
	}
	if t&unix.PERF_SAMPLE_CPU != 0 {
		s.CPU, _ = c.pair()
	}
	if t&unix.PERF_SAMPLE_PERIOD != 0 {
		s.Period = c.u64()
	}
	if t&unix.PERF_SAMPLE_READ != 0 {
		s.Read = f.read(&c)
	}
	s.chainStart = c.off
	if t&unix.PERF_SAMPLE_CALLCHAIN != 0 {
		s.Callchain = c.words(c.u64(), 8)
	}
	s.chainEnd = c.off
	if t&unix.PERF_SAMPLE_RAW != 0 {
		s.Raw = c.bytes(uint64(c.u32()))
	}
	if t&unix.PERF_SAMPLE_BRANCH_STACK != 0 {
		f.branches(&c, s, hwIndex)
	}
	s.userStart = c.off
	if t&unix.PERF_SAMPLE_REGS_USER != 0 {
		s.RegsABI, s.RegsMask, s.Regs = registers(&c, f.regsUser)
	}
	if t&unix.PERF_SAMPLE_STACK_USER != 0 {
		s.stack(&c)
	}
	s.userEnd = c.off
	if t&(unix.PERF_SAMPLE_WEIGHT|unix.PERF_SAMPLE_WEIGHT_STRUCT) != 0 {
		s.Weight = c.u64()
	}
	if t&unix.PERF_SAMPLE_DATA_SRC != 0 {
		s.DataSrc = c.u64()
	}
	if t&unix.PERF_SAMPLE_TRANSACTION != 0 {
		s.Transaction = c.u64()
	}
	if t&unix.PERF_SAMPLE_REGS_INTR != 0 {
		s.IntrABI, s.IntrMask, s.RegsIntr = registers(&c, f.regsIntr)
	}
	if t&unix.PERF_SAMPLE_PHYS_ADDR != 0 {
		s.PhysAddr = c.u64()
	}
	if t&unix.PERF_SAMPLE_CGROUP != 0 {
		s.Cgroup = c.u64()
	}
	if t&unix.PERF_SAMPLE_DATA_PAGE_SIZE != 0 {
		s.DataPageSize = c.u64()
	}
	if t&unix.PERF_SAMPLE_CODE_PAGE_SIZE != 0 {
		s.CodePageSize = c.u64()
	}
	if t&unix.PERF_SAMPLE_AUX != 0 {
		s.Aux = c.bytes(c.u64())
	}
	s.end = c.off
	return c.off, !c.bad
}

// read reads struct read_format: with GROUP it is a count, the times and (value, id, lost) of each member,
// else one value, the times, id and lost.
func (f *SampleFormat) read(c *cursor) []byte {
	const times = unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING
	const tags = unix.PERF_FORMAT_ID | unix.PERF_FORMAT_LOST
	nt := uint64(bits.OnesCount64(f.readFormat & times))
	each := 1 + uint64(bits.OnesCount64(f.readFormat&tags))
	if f.readFormat&unix.PERF_FORMAT_GROUP == 0 {
		return c.words(nt+each, 8)
	}
	peek := *c
	nr := peek.u64()
	if peek.bad || nr > MaxRecordSize {
		c.bad = true
		return nil
	}
	return c.words(1+nt+nr*each, 8)
}

func (f *SampleFormat) branches(c *cursor, s *Sample, hwIndex bool) {
	nr := c.u64()
	if hwIndex && f.branchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
		s.BranchHWIndex = c.u64()
	}
	if nr == 0 {
		return
	}
	s.Branches = c.words(nr, 24)
	if f.branchType&unix.PERF_SAMPLE_BRANCH_COUNTERS != 0 {
		s.BranchCounters = c.words(nr, 8)
	}
}

func registers(c *cursor, mask uint64) (abi, has uint64, regs Words) {
	abi = c.u64()
	if abi == unix.PERF_SAMPLE_REGS_ABI_NONE {
		return abi, 0, nil
	}
	return abi, mask, c.words(uint64(bits.OnesCount64(mask)), 8)
}

// stack reads size, the dump and dyn_size; the latter two are missing if size is 0.
func (s *Sample) stack(c *cursor) {
	s.StackSize = c.u64()
	if s.StackSize == 0 {
		return
	}
	dump := c.bytes(s.StackSize)
	s.DynSize = c.u64()
	if s.DynSize > uint64(len(dump)) {
		c.bad = true
		return
	}
	s.Stack = dump[:s.DynSize:s.DynSize]
}

// AppendWithoutUser appends r without its user registers and stack to dst, and makes s, which is what
// f.Sample made of r, a sample of the record that begins at len(dst): AppendUnwound takes both as it
// would have taken r. Of what points into the record only the callchain is left.
func AppendWithoutUser(dst []byte, r Record, s *Sample) []byte {
	start := len(dst)
	dst = append(dst, r[:s.userStart]...)
	dst = append(dst, r[s.userEnd:s.end]...)
	rec := dst[start:]
	binary.LittleEndian.PutUint16(rec[6:], uint16(len(rec)))
	s.userEnd, s.end = s.userStart, len(rec)
	if s.Callchain != nil {
		s.Callchain = Words(rec[s.chainEnd-len(s.Callchain) : s.chainEnd])
	}
	s.Read, s.Raw, s.Branches, s.BranchCounters, s.Regs = nil, nil, nil, nil, nil
	s.Stack, s.RegsIntr, s.Aux = nil, nil, nil
	return dst
}

// AppendCut appends r to dst as the kernel had written it if no more than size bytes of the stack had been
// asked for. s is what f.Sample made of r.
func AppendCut(dst []byte, r Record, s *Sample, size uint64) ([]byte, error) {
	if s.StackSize <= size {
		return append(dst, r[:s.end]...), nil
	}
	start, valid := len(dst), min(s.DynSize, size)
	dst = append(dst, r[:s.userEnd-int(s.StackSize)-16]...)
	dst = binary.LittleEndian.AppendUint64(dst, size)
	dst = append(dst, s.Stack[:valid]...)
	dst = append(dst, make([]byte, size-valid)...)
	dst = binary.LittleEndian.AppendUint64(dst, valid)
	dst = append(dst, r[s.userEnd:s.end]...)
	return finishRecord(dst, start)
}

// AppendUnwound appends r, encoded for f.Unwound(), to dst: the callchain is chain, the user registers
// and the stack are left out, all other fields and the header's misc bits are as in r. If the format
// has no stack, the callchain stays as it is. s is the result of f.Sample for r. Bytes behind the last
// field are left out. chain must not overlap with dst. The error is [ErrTooLarge] if the size does not
// fit into the header; dst is then returned unchanged.
func (f *SampleFormat) AppendUnwound(dst []byte, r Record, s *Sample, chain []uint64) ([]byte, error) {
	start := len(dst)
	if f.HasStack() {
		dst = append(dst, r[:s.chainStart]...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(chain)))
		for _, ip := range chain {
			dst = binary.LittleEndian.AppendUint64(dst, ip)
		}
		dst = append(dst, r[s.chainEnd:s.userStart]...)
	} else {
		dst = append(dst, r[:s.userStart]...)
	}
	dst = append(dst, r[s.userEnd:s.end]...)
	return finishRecord(dst, start)
}
