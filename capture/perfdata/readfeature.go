package perfdata

import (
	"bytes"
	"slices"
	"time"

	"unspool/perfring"
)

// maxFeature bounds the contents of a feature. The largest ones in practice, the formats of all
// tracepoints, take a few megabytes.
const maxFeature = 64 << 20

// Feature returns the contents of a feature, nil if there are none or they cannot be read. In a pipe,
// features arrive during calls of Next.
func (r *Reader) Feature(f Feature) []byte {
	c, ok := r.features[f]
	if !ok || c.at == nil {
		return c.data
	}
	if c.in.Size > maxFeature {
		return nil
	}
	// The section lies within the file, so this is not more than the file holds.
	b := make([]byte, c.in.Size)
	if n, _ := c.at.ReadAt(b, int64(c.in.Offset)); n < len(b) {
		return nil
	}
	return b
}

// Features returns all features with their contents. A feature without contents has an empty slice that is
// not nil.
func (r *Reader) Features() map[Feature][]byte {
	all := map[Feature][]byte{}
	for f, c := range r.features {
		if c.at == nil || c.in.Size == 0 {
			all[f] = append([]byte{}, c.data...)
		} else if b := r.Feature(f); b != nil {
			all[f] = b
		}
	}
	return all
}

// FeatureDamage returns a *DamageError if the features that the header announces are cut off. The records
// can be read nevertheless.
func (r *Reader) FeatureDamage() error { return r.featureErr }

// Text returns a feature that is a string: Hostname, OSRelease, Version, Arch, CPUDesc or CPUID. It is
// empty if there is none.
func (r *Reader) Text(f Feature) string {
	s, _, _ := takeString(r.Feature(f))
	return s
}

// SampleTimes returns when the first sample was taken and when the last one, if the recording says so. In a
// pipe, and where a recording ends early, it is not known before the end, or never.
func (r *Reader) SampleTimes() (first, last uint64, known bool) {
	b := r.Feature(SampleTime)
	if len(b) < 16 {
		return 0, 0, false
	}
	first, last = le.Uint64(b), le.Uint64(b[8:])
	return first, last, first <= last && last > 0
}

// maxCPUs is more than any kernel has.
const maxCPUs = 1 << 16

// CPUs is how many CPUs of the recorded machine were online, 0 when the recording does not say.
func (r *Reader) CPUs() int {
	b := r.Feature(NrCPUs)
	if len(b) < 8 {
		return 0
	}
	n := le.Uint32(b[4:]) // behind those that are present
	if n > maxCPUs {
		return 0
	}
	return int(n)
}

// CommandLine returns the command line of the recording tool, nil when it is not known.
func (r *Reader) CommandLine() (args []string) {
	b := r.Feature(CmdLine)
	if len(b) < 4 {
		return nil
	}
	n := le.Uint32(b)
	b = b[4:]
	for range n {
		arg, rest, ok := takeString(b)
		if !ok {
			return nil
		}
		args, b = append(args, arg), rest
	}
	return args
}

// BuildIDs returns the build IDs of files that the recording lists. MMAP2 records may have more.
func (r *Reader) BuildIDs() []FileBuildID {
	ids := slices.Clone(r.ids)
	for b := r.Feature(BuildIDs); ; {
		rec, err := perfring.CheckRecord(b)
		if err != nil {
			return ids
		}
		if id, ok := decodeBuildID(rec); ok {
			ids = append(ids, id)
		}
		b = b[len(rec):]
	}
}

// FileBuildIDs returns the build IDs of files that the recording lists, by path, for mappings without a build
// ID. A path with two build IDs is left out, as it is not known which of them a mapping had.
func (r *Reader) FileBuildIDs() map[string][]byte {
	ids := make(map[string][]byte)
	several := make(map[string]bool)
	for _, b := range r.BuildIDs() {
		if b.Kernel {
			continue
		}
		if known, ok := ids[b.Path]; ok && !bytes.Equal(known, b.ID) {
			several[b.Path] = true
		}
		ids[b.Path] = b.ID
	}
	for path := range several {
		delete(ids, path)
	}
	return ids
}

// decodeBuildID decodes a struct perf_record_header_build_id.
func decodeBuildID(rec perfring.Record) (id FileBuildID, ok bool) {
	if len(rec) <= buildIDSize {
		return id, false
	}
	field := rec[recordHeader+4 : buildIDSize]
	n := maxBuildID
	if rec.Misc()&miscBuildIDSize != 0 {
		n = int(field[maxBuildID])
	}
	if n == 0 || n > maxBuildID {
		return id, false
	}
	const cpuMode = 7 // PERF_RECORD_MISC_CPUMODE_MASK
	return FileBuildID{
		Path:   text(rec[buildIDSize:]),
		ID:     slices.Clone([]byte(field[:n])),
		Kernel: rec.Misc()&cpuMode == miscKernel,
	}, true
}

// nameEvents takes the events' names from an EVENT_DESC feature, which has the events of the attributes, in
// the same order or with the same IDs. Events that are not in it are left as they are.
func (r *Reader) nameEvents(b []byte) {
	if len(b) < 8 {
		return
	}
	clear(r.names) // of the last one in a pipe
	n, size := le.Uint32(b), uint64(le.Uint32(b[4:]))
	b = b[8:]
	for i := range n {
		if uint64(len(b)) < size+4 {
			return
		}
		nids := uint64(le.Uint32(b[size:]))
		name, rest, ok := takeString(b[size+4:])
		if !ok || nids > uint64(len(rest))/8 {
			return
		}
		at := int(i)
		if nids > 0 {
			id := le.Uint64(rest)
			if j, ok := r.byID[id]; ok {
				at = j
			} else if name != "" {
				r.names[id] = name
			}
		}
		if at < len(r.events) && name != "" {
			r.events[at].Name = name
		}
		b = rest[8*nids:]
	}
}

// takeString cuts a string off b: its padded length, then its bytes and zeros.
func takeString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n := uint64(le.Uint32(b))
	b = b[4:]
	if n > uint64(len(b)) {
		return "", nil, false
	}
	return text(b[:n]), b[n:], true
}

// text returns the bytes up to the first zero.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// WallClock converts a time of the samples' clock into the time of day, by CLOCK_DATA
// (perf.data-file-format.txt: version 1, clock, time of day and time of that clock at one moment, in ns). It
// is zero if the recording does not have that.
func (r *Reader) WallClock(at uint64) time.Time {
	b := r.Feature(ClockData)
	if at == 0 || len(b) < 24 || le.Uint32(b) != 1 {
		return time.Time{}
	}
	return time.Unix(0, int64(le.Uint64(b[8:])-le.Uint64(b[16:])+at))
}
