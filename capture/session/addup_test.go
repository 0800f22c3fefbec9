package session

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/vmas"
)

// outermost is the address that the outermost function of a goroutine returns to: a walk is complete there.
func outermost(t *testing.T) uint64 {
	t.Helper()
	var pcs [1000]uintptr
	n := runtime.Callers(0, pcs[:])
	pc := pcs[n-1]
	if f := runtime.FuncForPC(pc); f == nil || f.Name() != "runtime.goexit" {
		t.Fatalf("the outermost function is %v", f)
	}
	return uint64(pc)
}

// mapThisProgram tells a session's table of the code of this process.
func mapThisProgram(t *testing.T, s *Session, pc uint64) (pid uint32) {
	t.Helper()
	pid = uint32(os.Getpid())
	space, err := vmas.NewTable("/proc").Seed(pid)
	if err != nil {
		t.Fatal(err)
	}
	m := space.Find(pc)
	told := vmas.Map{
		Addr: m.Start, Len: m.End - m.Start, Offset: m.Offset, Prot: m.Prot,
		Name: []byte(m.File.Name()), ID: m.File.FileID,
	}
	s.images.Open(pid, s.table.Mmap(pid, told))
	return pid
}

// TestStatsAddUp compares what a session has counted with the records that it was given.
func TestStatsAddUp(t *testing.T) {
	const kernel, loader = ^uint64(127), 0xffffffff81003123
	s := newTestSession(sessiontest.Discard{})
	s.execve = execve{kernelCode: kernelCode{
		loaders: []kernelRange{{0xffffffff81003000, 0xffffffff81003800}},
	}}
	s.config.Offline = new(image.Offline)
	s.table.Comm(7, 7, []byte("seven"), true)
	s.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})
	goexit := outermost(t)
	complete := sessiontest.UserSample(mapThisProgram(t, s, goexit), goexit)
	pointer := func(bp uint64) sessiontest.RawSample { // BP leads to a frame, and from there to bp
		f := sessiontest.UserSample(7, 0x1234)
		f.BP = 0x7010
		binary.LittleEndian.PutUint64(f.Stack[16:], bp)
		binary.LittleEndian.PutUint64(f.Stack[24:], 0x1800)
		return f
	}
	ends := pointer(0)
	ends.DynSize = 48 // of the 64 bytes that were set aside
	inside := sessiontest.UserSample(7, 0x1234)
	inside.Misc, inside.Chain, inside.DynSize = unix.PERF_RECORD_MISC_KERNEL, []uint64{kernel, loader}, 0
	damaged := sessiontest.UserSample(7, 0x1234)
	damaged.DynSize = 1 << 40

	f := sessiontest.Format()
	id := &perfring.SampleID{PID: 7, TID: 7, Time: 5, ID: 1}
	lost, err := perfring.AppendLost(nil, &f, &perfring.Lost{ID: 1, Lost: 5}, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []perfring.Record{
		complete.Record(), sessiontest.UserSample(7, 0x5000).Record(), sessiontest.UserSample(7, 0x5000).Record(),
		ends.Record(), pointer(0x8000).Record(),
		sessiontest.RawSample{PID: 2, Misc: unix.PERF_RECORD_MISC_KERNEL, Chain: []uint64{kernel, 9}}.Record(),
		inside.Record(), damaged.Record(),
		lost, sessiontest.RawRecord(perfring.RecordLostSamples, 6, 1, 3, 0, 0, 0, 0, 0, 0, 0),
		sessiontest.RawRecord(perfring.RecordThrottle, 7, 1, make([]byte, 24)...),
	} {
		if err := s.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	stats := s.Counted()
	stats.Duration, stats.CPU, stats.Busy = 2*time.Second, time.Second/10, 14*time.Microsecond
	stats.Start = 60 * time.Millisecond
	stats.Priority = "real-time 1"
	stats.MaxRSS, stats.Written, stats.Command = 1<<20, 5000, []string{"a&b"}
	stats.Rings = perfring.RingUse{Each: 1 << 20, Total: 6 << 20, Stack: 7168, Lasts: 250 * time.Millisecond}

	var b strings.Builder
	if err := stats.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var j struct {
		Version  int
		Command  []string
		Duration float64 `json:"duration_s"`
		Samples  map[string]any
		Unwind   struct {
			Complete, Frames uint64
			CompleteBy       map[string]uint64 `json:"complete_by"`
			Ended, Cut       map[string]uint64
			Unjoined         map[string]uint64
			FramesBy         map[string]uint64 `json:"frames_by"`
		}
		Cost  map[string]any
		Rings map[string]any
		Bytes map[string]uint64
	}
	if err := json.Unmarshal([]byte(b.String()), &j); err != nil {
		t.Fatal(err)
	}
	if j.Version != 1 || !slices.Equal(j.Command, stats.Command) || j.Duration != 2 {
		t.Errorf("version %d, command %q, duration %v", j.Version, j.Command, j.Duration)
	}
	ended := make(map[string]uint64)
	for r := range unwind.Reason(unwind.NumReasons) {
		ended[r.String()] = 0
	}
	maps.Copy(ended, map[string]uint64{"root": 1, "unmapped": 2, "no_cfi": 1, "dump_too_short": 1})
	for _, c := range []struct {
		name      string
		got, want map[string]uint64
	}{
		{"samples", numbers(j.Samples), map[string]uint64{
			"total": 7, "user": 5, "kernel_only": 2, "exec": 1, "lost": 8, "throttled": 1, "malformed": 1,
			"denied": 0, "excluded": 0}},
		{"ended", j.Unwind.Ended, ended},
		{"complete by", j.Unwind.CompleteBy, map[string]uint64{"cfi": 1, "fallback": 0, "joined": 0}},
		{"cut", j.Unwind.Cut, map[string]uint64{"too_deep": 1, "gap": 0, "no_copy": 0}},
		{"unjoined", j.Unwind.Unjoined, map[string]uint64{"unseen": 0, "one_sided": 0, "disagree": 0, "doubtful": 0,
			"not_sought": 1}},
		{"bytes", j.Bytes, map[string]uint64{"stack_copied": 64 + 2*64 + 48 + 64, "written": 5000}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if j.Unwind.Complete != 1 || j.Unwind.Frames != 1+2*1+2+2 {
		t.Errorf("%d complete, %d frames", j.Unwind.Complete, j.Unwind.Frames)
	}
	if sum := sumOf(j.Unwind.FramesBy); sum != 7 || j.Unwind.FramesBy["sample"] != 5 ||
		j.Unwind.FramesBy["frame_pointer"] != 2 {
		t.Errorf("frames by %v", j.Unwind.FramesBy)
	}
	cost := map[string]any{"cpu_s": 0.1, "start_cpu_s": 0.06, "end_cpu_s": 0.039986, "cpu_share": 7e-06,
		"us_per_sample": 2.0, "max_rss_bytes": float64(1 << 20), "priority": "real-time 1"}
	if !maps.Equal(j.Cost, cost) {
		t.Errorf("cost %v, want %v", j.Cost, cost)
	}
	rings := map[string]any{"each_bytes": float64(1 << 20), "total_bytes": float64(6 << 20), "stack_bytes": 7168.0,
		"lasts_s": 0.25}
	if !maps.Equal(j.Rings, rings) {
		t.Errorf("rings %v, want %v", j.Rings, rings)
	}
}

// numbers are the members of a JSON object that are numbers.
func numbers(object map[string]any) map[string]uint64 {
	found := make(map[string]uint64)
	for name, v := range object {
		if n, ok := v.(float64); ok {
			found[name] = uint64(n)
		}
	}
	return found
}

func sumOf(counts map[string]uint64) (n uint64) {
	for _, v := range counts {
		n += v
	}
	return n
}
