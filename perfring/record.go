package perfring

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// RecordType is the type of a record: below 64 one of the kernel's (enum perf_event_type), from 64 on one
// that the perf tool writes into its files (enum perf_user_event_type).
type RecordType uint32

// The kernel's record types, include/uapi/linux/perf_event.h.
const (
	RecordMmap              RecordType = unix.PERF_RECORD_MMAP
	RecordLost              RecordType = unix.PERF_RECORD_LOST
	RecordComm              RecordType = unix.PERF_RECORD_COMM
	RecordExit              RecordType = unix.PERF_RECORD_EXIT
	RecordThrottle          RecordType = unix.PERF_RECORD_THROTTLE
	RecordUnthrottle        RecordType = unix.PERF_RECORD_UNTHROTTLE
	RecordFork              RecordType = unix.PERF_RECORD_FORK
	RecordRead              RecordType = unix.PERF_RECORD_READ
	RecordSample            RecordType = unix.PERF_RECORD_SAMPLE
	RecordMmap2             RecordType = unix.PERF_RECORD_MMAP2
	RecordAux               RecordType = unix.PERF_RECORD_AUX
	RecordItraceStart       RecordType = unix.PERF_RECORD_ITRACE_START
	RecordLostSamples       RecordType = unix.PERF_RECORD_LOST_SAMPLES
	RecordSwitch            RecordType = unix.PERF_RECORD_SWITCH
	RecordSwitchCPUWide     RecordType = unix.PERF_RECORD_SWITCH_CPU_WIDE
	RecordNamespaces        RecordType = unix.PERF_RECORD_NAMESPACES
	RecordKsymbol           RecordType = unix.PERF_RECORD_KSYMBOL
	RecordBPFEvent          RecordType = unix.PERF_RECORD_BPF_EVENT
	RecordCgroup            RecordType = unix.PERF_RECORD_CGROUP
	RecordTextPoke          RecordType = unix.PERF_RECORD_TEXT_POKE
	RecordAuxOutputHWID     RecordType = unix.PERF_RECORD_AUX_OUTPUT_HW_ID
	RecordCallchainDeferred RecordType = 22
)

// The perf tool's own record types, tools/lib/perf/include/perf/event.h. They carry no sample_id.
const (
	RecordHeaderAttr      RecordType = 64
	RecordHeaderEventType RecordType = 65
	RecordTracingData     RecordType = 66
	RecordBuildID         RecordType = 67
	RecordFinishedRound   RecordType = 68
	RecordIDIndex         RecordType = 69
	RecordAuxtraceInfo    RecordType = 70
	RecordAuxtrace        RecordType = 71
	RecordAuxtraceError   RecordType = 72
	RecordThreadMap       RecordType = 73
	RecordCPUMap          RecordType = 74
	RecordStatConfig      RecordType = 75
	RecordStat            RecordType = 76
	RecordStatRound       RecordType = 77
	RecordEventUpdate     RecordType = 78
	RecordTimeConv        RecordType = 79
	RecordHeaderFeature   RecordType = 80
	RecordCompressed      RecordType = 81
	RecordFinishedInit    RecordType = 82
	RecordCompressed2     RecordType = 83
	RecordBPFMetadata     RecordType = 84
)

// firstUserType is PERF_RECORD_USER_TYPE_START.
const firstUserType RecordType = 64

var recordNames = [...]string{
	RecordMmap:              "MMAP",
	RecordLost:              "LOST",
	RecordComm:              "COMM",
	RecordExit:              "EXIT",
	RecordThrottle:          "THROTTLE",
	RecordUnthrottle:        "UNTHROTTLE",
	RecordFork:              "FORK",
	RecordRead:              "READ",
	RecordSample:            "SAMPLE",
	RecordMmap2:             "MMAP2",
	RecordAux:               "AUX",
	RecordItraceStart:       "ITRACE_START",
	RecordLostSamples:       "LOST_SAMPLES",
	RecordSwitch:            "SWITCH",
	RecordSwitchCPUWide:     "SWITCH_CPU_WIDE",
	RecordNamespaces:        "NAMESPACES",
	RecordKsymbol:           "KSYMBOL",
	RecordBPFEvent:          "BPF_EVENT",
	RecordCgroup:            "CGROUP",
	RecordTextPoke:          "TEXT_POKE",
	RecordAuxOutputHWID:     "AUX_OUTPUT_HW_ID",
	RecordCallchainDeferred: "CALLCHAIN_DEFERRED",
	RecordHeaderAttr:        "HEADER_ATTR",
	RecordHeaderEventType:   "HEADER_EVENT_TYPE",
	RecordTracingData:       "HEADER_TRACING_DATA",
	RecordBuildID:           "HEADER_BUILD_ID",
	RecordFinishedRound:     "FINISHED_ROUND",
	RecordIDIndex:           "ID_INDEX",
	RecordAuxtraceInfo:      "AUXTRACE_INFO",
	RecordAuxtrace:          "AUXTRACE",
	RecordAuxtraceError:     "AUXTRACE_ERROR",
	RecordThreadMap:         "THREAD_MAP",
	RecordCPUMap:            "CPU_MAP",
	RecordStatConfig:        "STAT_CONFIG",
	RecordStat:              "STAT",
	RecordStatRound:         "STAT_ROUND",
	RecordEventUpdate:       "EVENT_UPDATE",
	RecordTimeConv:          "TIME_CONV",
	RecordHeaderFeature:     "HEADER_FEATURE",
	RecordCompressed:        "COMPRESSED",
	RecordFinishedInit:      "FINISHED_INIT",
	RecordCompressed2:       "COMPRESSED2",
	RecordBPFMetadata:       "BPF_METADATA",
}

// String returns the name that perf script -D prints, without PERF_RECORD_: "MMAP2", "SAMPLE".
func (t RecordType) String() string {
	if int(t) < len(recordNames) && recordNames[t] != "" {
		return recordNames[t]
	}
	return fmt.Sprintf("RecordType(%d)", uint32(t))
}

// headerSize is sizeof(struct perf_event_header): u32 type, u16 misc, u16 size.
const headerSize = 8

// MaxRecordSize is the largest size that a record's header can state, in bytes.
const MaxRecordSize = 1<<16 - 1

// Record is one raw PERF_RECORD_*, header included, cut to the size that the header states. It is
// valid only during the call that hands it out. Make one with [CheckRecord].
type Record []byte

// Type returns the record's type.
func (r Record) Type() RecordType { return RecordType(binary.LittleEndian.Uint32(r)) }

// Misc returns the header's misc bits: PERF_RECORD_MISC_*.
func (r Record) Misc() uint16 { return binary.LittleEndian.Uint16(r[4:]) }

// Size returns the record's size in bytes, header included.
func (r Record) Size() int { return int(binary.LittleEndian.Uint16(r[6:])) }

// Body returns the bytes behind the header.
func (r Record) Body() []byte { return r[headerSize:] }

// CheckRecord cuts the first record off b. It makes sure that the header is there, and that the
// size in it covers the header and lies within b; the decoders check the body. The sizes of the kernel's
// records are multiples of 8 bytes, but those of perf's COMPRESSED ones are not, so this is not checked
// here.
func CheckRecord(b []byte) (Record, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("record header: %d of %d bytes", len(b), headerSize)
	}
	size := int(binary.LittleEndian.Uint16(b[6:]))
	if size < headerSize || size > len(b) {
		return nil, fmt.Errorf("%s record: size %d with %d bytes left", Record(b).Type(), size, len(b))
	}
	return Record(b[:size:size]), nil
}

// Words is a run of 64-bit words inside a record: they are not copied and need not be aligned. Bytes
// behind the last whole word are not part of it.
type Words []byte

// Len returns the number of words.
func (w Words) Len() int { return len(w) / 8 }

// At returns word i, which must be below Len.
func (w Words) At(i int) uint64 { return binary.LittleEndian.Uint64(w[8*i:]) }

// appendHeader appends a header whose size is filled in by finishRecord.
func appendHeader(dst []byte, t RecordType, misc uint16) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	dst = binary.LittleEndian.AppendUint16(dst, misc)
	return append(dst, 0, 0)
}

// finishRecord puts the size into the header of the record that starts at dst[start:].
// If that is more than a header can state, it returns dst without the record.
func finishRecord(dst []byte, start int) ([]byte, error) {
	size := len(dst) - start
	if size > MaxRecordSize {
		t := Record(dst[start:]).Type()
		return dst[:start], fmt.Errorf("%s record of %d bytes: %w", t, size, ErrTooLarge)
	}
	binary.LittleEndian.PutUint16(dst[start+6:], uint16(size))
	return dst, nil
}
