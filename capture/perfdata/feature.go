package perfdata

import "unspool/perfring"

// Feature is the number of a feature, HEADER_* in tools/perf/util/header.h.
type Feature uint8

// The features that this package writes or understands. Others are carried as they are.
const (
	TracingData   Feature = 1  // formats of tracepoints
	BuildIDs      Feature = 2  // of files and of the kernel
	Hostname      Feature = 3  // string
	OSRelease     Feature = 4  // string
	Version       Feature = 5  // string: of the recording tool
	Arch          Feature = 6  // string, as uname -m has it
	NrCPUs        Feature = 7  // present and online
	CPUDesc       Feature = 8  // string
	CPUID         Feature = 9  // string
	TotalMem      Feature = 10 // KiB
	CmdLine       Feature = 11 // strings
	EventDesc     Feature = 12 // names and IDs of the events
	AuxtraceIndex Feature = 18 // where in the file AUXTRACE records are
	SampleTime    Feature = 21 // of the first and the last sample
	ClockID       Feature = 23 // resolution of the samples' clock, ns
	DirFormat     Feature = 24 // there are more files with records
	Compressed    Feature = 27 // how records are compressed
	ClockData     Feature = 29 // one moment by the samples' clock and by the wall clock
)

// FileBuildID names the build of a mapped file, or of the kernel.
type FileBuildID struct {
	Path   string // as the records name it, or "[kernel.kallsyms]"
	ID     []byte // up to 20 bytes
	Kernel bool   // the kernel or one of its modules
}

// maxBuildID is the room for an ID in struct perf_record_header_build_id.
const maxBuildID = 20

// appendBuildID appends id as a struct perf_record_header_build_id. In the BUILD_ID feature its
// type is 0, as a record of a pipe it is HEADER_BUILD_ID.
func appendBuildID(b []byte, typ perfring.RecordType, id FileBuildID) []byte {
	misc := uint16(miscUser)
	if id.Kernel {
		misc = miscKernel
	}
	// perf 7.2 takes no record from a pipe that does not end at a multiple of 8 bytes.
	room := align(buildIDSize+align(len(id.Path)+1, nameAlign), 8) - buildIDSize
	b = appendHeader(b, typ, misc|miscBuildIDSize, buildIDSize+room)
	b = le.AppendUint32(b, 0xffffffff) // pid: the host, not a guest
	var field [24]byte
	n := copy(field[:maxBuildID], id.ID)
	field[maxBuildID] = uint8(n)
	b = append(b, field[:]...)
	b = append(b, id.Path...)
	return append(b, make([]byte, room-len(id.Path))...)
}

// buildIDSize is the size of struct perf_record_header_build_id without its path.
const buildIDSize = recordHeader + 4 + 24
