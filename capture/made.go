package capture

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
)

// userRegs is the register mask of the hand-made samples: BP, SP and IP.
const userRegs = 1<<6 | 1<<7 | 1<<8

func testFormat() perfring.Format {
	return perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  userRegs,
		Sample_stack_user: 64,
		Bits:              unix.PerfBitSampleIDAll,
	})
}

// testSample is what a hand-made PERF_RECORD_SAMPLE says.
type testSample struct {
	pid, misc  uint32
	chain      []uint64
	abi        uint64
	bp, sp, ip uint64
	stack      []byte // 64 bytes, or none
	dynSize    uint64
}

func (s testSample) record() perfring.Record {
	b := binary.LittleEndian.AppendUint64(nil, 1) // identifier
	b = binary.LittleEndian.AppendUint64(b, s.ip)
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, s.pid), s.pid)
	b = binary.LittleEndian.AppendUint64(b, 1000) // time
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.chain)))
	for _, ip := range s.chain {
		b = binary.LittleEndian.AppendUint64(b, ip)
	}
	b = binary.LittleEndian.AppendUint64(b, s.abi)
	if s.abi != unix.PERF_SAMPLE_REGS_ABI_NONE {
		for _, r := range []uint64{s.bp, s.sp, s.ip} {
			b = binary.LittleEndian.AppendUint64(b, r)
		}
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.stack)))
	if len(s.stack) > 0 {
		b = binary.LittleEndian.AppendUint64(append(b, s.stack...), s.dynSize)
	}
	h := binary.LittleEndian.AppendUint32(nil, uint32(perfring.RecordSample))
	h = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(h, uint16(s.misc)), uint16(8+len(b)))
	return append(h, b...)
}

// kept collects what a session hands on.
type kept struct {
	records []perfring.Record
	err     error
}

func (k *kept) Write(rec []byte) error {
	k.records = append(k.records, slices.Clone(rec))
	return k.err
}

func (k *kept) WriteSample(w *perfdata.Walked) error { return w.Records(k.Write) }

type discard struct{}

func (discard) Write([]byte) error { return nil }

func (d discard) WriteSample(w *perfdata.Walked) error { return w.Records(d.Write) }

// userSample is a sample of process pid at ip, with a stack of zeros.
func userSample(pid uint32, ip uint64) testSample {
	return testSample{pid: pid, misc: unix.PERF_RECORD_MISC_USER, abi: unix.PERF_SAMPLE_REGS_ABI_64, ip: ip,
		sp:    0x7000,
		stack: make([]byte, 64), dynSize: 64}
}

// rawRecord makes a record of the kernel's with the trailer of rawEvents.
func rawRecord(typ perfring.RecordType, time, id uint64, body ...byte) perfring.Record {
	return aRecord(typ, trailer(body, 7, time, id)...)
}

func trailer(b []byte, pid uint32, time, id uint64) []byte {
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(slices.Clone(b), pid), pid)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, time), id)
}

func aRecord(typ perfring.RecordType, body ...byte) perfring.Record {
	b := binary.LittleEndian.AppendUint32(nil, uint32(typ))
	b = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(b, 0), uint16(8+len(body)))
	return append(b, body...)
}

// at sets the time of a sample.
func (s testSample) at(time uint64) perfring.Record {
	r := s.record()
	binary.LittleEndian.PutUint64(r[8+24:], time)
	return r
}
