// Package sessiontest makes records by hand, and has sinks for them, for tests of what unwinds stacks.
package sessiontest

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
)

// UserRegs is the register mask of the hand-made samples: BP, SP and IP.
const UserRegs = 1<<6 | 1<<7 | 1<<8

// Format is that of the hand-made samples.
func Format() perfring.SampleFormat {
	return perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  UserRegs,
		Sample_stack_user: 64,
		Bits:              unix.PerfBitSampleIDAll,
	})
}

// A RawSample is what a hand-made PERF_RECORD_SAMPLE says.
type RawSample struct {
	PID, Misc  uint32
	Chain      []uint64
	ABI        uint64
	BP, SP, IP uint64
	Stack      []byte // 64 bytes, or none
	DynSize    uint64
}

// Record is the sample as the kernel writes it.
func (s RawSample) Record() perfring.Record {
	b := binary.LittleEndian.AppendUint64(nil, 1) // identifier
	b = binary.LittleEndian.AppendUint64(b, s.IP)
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, s.PID), s.PID)
	b = binary.LittleEndian.AppendUint64(b, 1000) // time
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Chain)))
	for _, ip := range s.Chain {
		b = binary.LittleEndian.AppendUint64(b, ip)
	}
	b = binary.LittleEndian.AppendUint64(b, s.ABI)
	if s.ABI != unix.PERF_SAMPLE_REGS_ABI_NONE {
		for _, r := range []uint64{s.BP, s.SP, s.IP} {
			b = binary.LittleEndian.AppendUint64(b, r)
		}
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Stack)))
	if len(s.Stack) > 0 {
		b = binary.LittleEndian.AppendUint64(append(b, s.Stack...), s.DynSize)
	}
	h := binary.LittleEndian.AppendUint32(nil, uint32(perfring.RecordSample))
	h = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(h, uint16(s.Misc)), uint16(8+len(b)))
	return append(h, b...)
}

// Collector is a sink that collects what a session hands on.
type Collector struct {
	Records []perfring.Record
	Err     error
}

// Write keeps a copy of a record.
func (k *Collector) Write(rec []byte) error {
	k.Records = append(k.Records, slices.Clone(rec))
	return k.Err
}

// WriteSample keeps what is written for a sample.
func (k *Collector) WriteSample(w *perfdata.Walked) error { return w.Records(k.Write) }

// Discard is a sink that keeps nothing.
type Discard struct{}

// Write is for sinks.
func (Discard) Write([]byte) error { return nil }

// WriteSample makes the records of a sample.
func (d Discard) WriteSample(w *perfdata.Walked) error { return w.Records(d.Write) }

// UserSample is a sample of process pid at ip, with a stack of zeros.
func UserSample(pid uint32, ip uint64) RawSample {
	return RawSample{PID: pid, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64, IP: ip,
		SP:    0x7000,
		Stack: make([]byte, 64), DynSize: 64}
}

// RawRecord makes a record of the kernel's with the trailer of rawEvents.
func RawRecord(typ perfring.RecordType, time, id uint64, body ...byte) perfring.Record {
	return ARecord(typ, Trailer(body, 7, time, id)...)
}

// Trailer appends the trailer of records of [Format] to the contents of one.
func Trailer(b []byte, pid uint32, time, id uint64) []byte {
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(slices.Clone(b), pid), pid)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, time), id)
}

// ARecord makes a record of any type.
func ARecord(typ perfring.RecordType, body ...byte) perfring.Record {
	b := binary.LittleEndian.AppendUint32(nil, uint32(typ))
	b = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(b, 0), uint16(8+len(body)))
	return append(b, body...)
}

// At sets the time of a sample.
func (s RawSample) At(time uint64) perfring.Record {
	r := s.Record()
	binary.LittleEndian.PutUint64(r[8+24:], time)
	return r
}
