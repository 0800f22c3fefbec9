package perfdata

import (
	"strconv"

	"unspool/perfring"
)

// Feature is the number of a feature, HEADER_* in tools/perf/util/header.h.
type Feature uint8

// The features that this package writes or understands.
const (
	TracingData Feature = 1
	BuildIDs    Feature = 2
	Hostname    Feature = 3
	OSRelease   Feature = 4
	Version     Feature = 5
	Arch        Feature = 6
	NrCPUs      Feature = 7
	CPUDesc     Feature = 8
	CPUID       Feature = 9
	TotalMem    Feature = 10
	CmdLine     Feature = 11
	EventDesc   Feature = 12
	CPUTopology Feature = 13
	NUMA        Feature = 14
	BranchStack Feature = 15
	PMUMappings Feature = 16
	GroupDesc   Feature = 17
	Auxtrace    Feature = 18
	Stat        Feature = 19
	Cache       Feature = 20
	SampleTime  Feature = 21
	MemTopology Feature = 22
	ClockID     Feature = 23
	DirFormat   Feature = 24
	BPFProgInfo Feature = 25
	BPFBTF      Feature = 26
	Compressed  Feature = 27
	CPUPMUCaps  Feature = 28
	ClockData   Feature = 29
	HybridTopo  Feature = 30
	PMUCaps     Feature = 31
)

var featureNames = [...]string{
	TracingData: "TRACING_DATA", BuildIDs: "BUILD_ID", Hostname: "HOSTNAME", OSRelease: "OSRELEASE",
	Version: "VERSION", Arch: "ARCH", NrCPUs: "NRCPUS", CPUDesc: "CPUDESC", CPUID: "CPUID",
	TotalMem: "TOTAL_MEM", CmdLine: "CMDLINE", EventDesc: "EVENT_DESC", CPUTopology: "CPU_TOPOLOGY",
	NUMA: "NUMA_TOPOLOGY", BranchStack: "BRANCH_STACK", PMUMappings: "PMU_MAPPINGS",
	GroupDesc: "GROUP_DESC", Auxtrace: "AUXTRACE", Stat: "STAT", Cache: "CACHE",
	SampleTime: "SAMPLE_TIME", MemTopology: "MEM_TOPOLOGY", ClockID: "CLOCKID",
	DirFormat: "DIR_FORMAT", BPFProgInfo: "BPF_PROG_INFO", BPFBTF: "BPF_BTF",
	Compressed: "COMPRESSED", CPUPMUCaps: "CPU_PMU_CAPS", ClockData: "CLOCK_DATA",
	HybridTopo: "HYBRID_TOPOLOGY", PMUCaps: "PMU_CAPS",
}

// String returns the name without its prefix: "CMDLINE".
func (f Feature) String() string {
	if int(f) < len(featureNames) && featureNames[f] != "" {
		return featureNames[f]
	}
	return "feature " + strconv.Itoa(int(f))
}

// BuildID names the build of a mapped file, or of the kernel.
type BuildID struct {
	Path   string // as the records name it, or "[kernel.kallsyms]"
	ID     []byte // up to 20 bytes
	Kernel bool   // the kernel or one of its modules
}

// maxBuildID is the room for an ID in struct perf_record_header_build_id.
const maxBuildID = 20

// appendBuildID appends id as a struct perf_record_header_build_id. In the BUILD_ID feature its
// type is 0, as a record of a pipe it is HEADER_BUILD_ID.
func appendBuildID(b []byte, typ perfring.RecordType, id BuildID) []byte {
	misc := uint16(miscUser)
	if id.Kernel {
		misc = miscKernel
	}
	room := align(len(id.Path)+1, nameAlign)
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
