package perfdata

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// feature is a feature with its contents.
type feature struct {
	num  Feature
	data []byte
}

// features returns the features that are known before the first record, ordered by number: about the
// machine, the command and the events. Features that cannot be read from this machine are left out.
func features(o Options, events []perfring.Attr) []feature {
	fs := givenFeatures(o.Features, events)
	if o.Features == nil {
		fs = ownFeatures(o, events)
	}
	slices.SortFunc(fs, func(a, b feature) int { return int(a.num) - int(b.num) })
	return fs
}

// givenFeatures returns the features of another recording of the same events.
func givenFeatures(given map[Feature][]byte, events []perfring.Attr) []feature {
	fs := []feature{{EventDesc, eventDesc(events)}}
	for n, data := range given {
		switch n {
		case EventDesc, BuildIDs, Compressed, AuxtraceIndex, DirFormat:
		default:
			fs = append(fs, feature{n, data})
		}
	}
	return fs
}

// ownFeatures returns the features of this machine and this recording.
func ownFeatures(o Options, events []perfring.Attr) []feature {
	var fs []feature
	add := func(n Feature, data []byte) {
		if len(data) > 0 {
			fs = append(fs, feature{n, data})
		}
	}
	text := func(n Feature, s string) {
		if s != "" {
			add(n, appendString(nil, s))
		}
	}

	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		text(Hostname, unix.ByteSliceToString(uts.Nodename[:]))
		text(OSRelease, unix.ByteSliceToString(uts.Release[:]))
		text(Arch, unix.ByteSliceToString(uts.Machine[:]))
	}
	text(Version, o.Version)
	add(NrCPUs, cpuCount("/sys/devices/system/cpu"))
	text(CPUDesc, field("/proc/cpuinfo", "model name"))
	total := strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB")
	if kB, err := strconv.ParseUint(total, 10, 64); err == nil {
		add(TotalMem, le.AppendUint64(nil, kB))
	}
	if len(o.CommandLine) > 0 {
		b := le.AppendUint32(nil, uint32(len(o.CommandLine)))
		for _, arg := range o.CommandLine {
			b = appendString(b, arg)
		}
		add(CmdLine, b)
	}
	add(EventDesc, eventDesc(events))
	if clock, ok := clockOf(events); ok {
		var res unix.Timespec
		if unix.ClockGetres(clock, &res) == nil {
			add(ClockID, le.AppendUint64(nil, uint64(res.Nano())))
		}
		add(ClockData, clockData(clock))
	}
	return fs
}

// eventDesc encodes the EVENT_DESC feature: every event with its IDs and its name.
func eventDesc(events []perfring.Attr) []byte {
	b := le.AppendUint32(nil, uint32(len(events)))
	b = le.AppendUint32(b, fileAttrSize)
	for _, e := range events {
		b = appendAttr(b, e.PerfEventAttr, fileAttrSize)
		b = le.AppendUint32(b, uint32(len(e.IDs)))
		b = appendString(b, e.Name)
		for _, id := range e.IDs {
			b = le.AppendUint64(b, id)
		}
	}
	return b
}

// clockOf returns the clock of the samples' times, if an event names one.
func clockOf(events []perfring.Attr) (clock int32, ok bool) {
	for _, e := range events {
		if e.PerfEventAttr.Bits&unix.PerfBitUseClockID != 0 {
			return e.PerfEventAttr.Clockid, true
		}
	}
	return 0, false
}

// clockData encodes the CLOCK_DATA feature: one moment by the wall clock and by the samples' clock, from
// which perf script -F tod computes a sample's time of day.
func clockData(clock int32) []byte {
	var ts unix.Timespec
	before := time.Now()
	if unix.ClockGettime(clock, &ts) != nil {
		return nil
	}
	wall := before.Add(time.Since(before) / 2)
	b := le.AppendUint32(nil, 1) // version of the feature
	b = le.AppendUint32(b, uint32(clock))
	b = le.AppendUint64(b, uint64(wall.UnixNano()))
	return le.AppendUint64(b, uint64(ts.Nano()))
}

// cpuCount encodes the NRCPUS feature: the numbers of CPUs that are present and online.
func cpuCount(dir string) (b []byte) {
	for _, name := range []string{"present", "online"} {
		cpus, err := perfring.ReadCPUList(filepath.Join(dir, name))
		if err != nil || len(cpus) == 0 {
			return nil
		}
		b = le.AppendUint32(b, uint32(len(cpus)))
	}
	return b
}

// field returns the first value of a key in a file with lines like "model name : AMD EPYC".
func field(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
