package session

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// madeProcesses are processes with a number of executable mappings each, the last of which is a jitdump.
type madeProcesses struct {
	process.Direct
	lines map[uint32]int
}

func (m *madeProcesses) Text(pid, tid uint32, name process.Text, _ int) (io.ReadCloser, error) {
	n, ok := m.lines[pid]
	var b strings.Builder
	switch {
	case !ok:
		return nil, fs.ErrNotExist
	case name == process.Stat:
		fmt.Fprintf(&b, "%d (p%d) S 3 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 42 0 0\n", tid, tid)
	default:
		for i := range n - 1 {
			fmt.Fprintf(&b, "%x000-%x000 r-xp 00000000 00:00 1 /file\n", 2*i+1, 2*i+2)
		}
		fmt.Fprintf(&b, "7f0000000000-7f0000001000 r-xp 00000000 00:00 1 /tmp/jit-%d.dump\n", pid)
	}
	return io.NopCloser(strings.NewReader(b.String())), nil
}

func (m *madeProcesses) Numbers(pid uint32) (all []uint32, err error) {
	if _, ok := m.lines[pid]; ok {
		return []uint32{pid, pid + 1}, nil
	}
	return nil, fs.ErrNotExist
}

func (m *madeProcesses) Owner(uint32) (uint32, error) { return 0, nil }

// TestProcessesAreToldWhenTheyAreSampled reads processes that are idle at first. Ahead of its first sample each is
// told, and again in each further file. Of a large one only what its samples need is told.
func TestProcessesAreToldWhenTheyAreSampled(t *testing.T) {
	const small, large, unread = 100, 200, 300
	var k sessiontest.Collector
	f := sessiontest.Format()
	s := New(Config{Format: &f, Sink: &k, Proc: "/proc", MaxStack: 2048,
		Processes: &madeProcesses{lines: map[uint32]int{small: 3, large: 5000, unread: 2}}})
	if err := s.SeedLater([]int{small, large, unread}); err != nil {
		t.Fatal(err)
	}
	left := 2
	if err := s.SeedSome(func() bool { return left > 0 }); err != nil || len(k.Records) > 0 {
		t.Fatalf("%d records before the first sample: %v", len(k.Records), err)
	}
	left = 0
	// What is written for a sample, without the sample.
	sample := func(pid uint32, ip uint64) string {
		t.Helper()
		k.Records = nil
		if err := s.Record(sessiontest.UserSample(pid, ip).Record()); err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, r := range k.Records[:len(k.Records)-1] {
			var c perfring.Comm
			var m perfring.Mmap2
			switch {
			case perfring.DecodeComm(r, &c) == nil:
				told = append(told, string(c.Comm))
			case perfring.DecodeMmap2(r, &m) == nil && m.PID == pid:
				told = append(told, fmt.Sprintf("%x", m.Addr))
			}
		}
		slices.Sort(told)
		return strings.Join(told, " ")
	}
	for _, part := range []string{"the first file", "the next file"} {
		for _, c := range []struct {
			pid  uint32
			ip   uint64
			want string
		}{
			{small, 0x1234, "1000 3000 7f0000000000 p100 p101"},
			{small, 0x3234, ""},
			{large, 0x5234, "5000 7f0000000000 p200"},
			{large, 0x5834, ""},
			{large, 0x7234, "7000"},
			{unread, 0x1234, "1000 7f0000000000 p300 p301"},
			{unread, 0x1234, ""},
		} {
			if got := sample(c.pid, c.ip); got != c.want {
				t.Errorf("%s, process %d at %#x: told %q, want %q", part, c.pid, c.ip, got, c.want)
			}
		}
		begun := false
		if err := s.Restate(func() error { begun = true; return nil }); err != nil || !begun || s.Told() != 0 {
			t.Errorf("begun: %v, %d bytes told, %v", begun, s.Told(), err)
		}
	}
	if got := sample(small, 0x1234); s.Told() == 0 || got == "" {
		t.Errorf("%q, %d bytes told", got, s.Told())
	}
	if s.Stats.Early != 0 {
		t.Errorf("%d samples of processes that were not read", s.Stats.Early)
	}
}

// TestSamplesWithoutAStackTellOfProcesses: who reads the recording knows the name of the process.
func TestSamplesWithoutAStackTellOfProcesses(t *testing.T) {
	var k sessiontest.Collector
	f := perfring.NewFormat(&unix.PerfEventAttr{Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP |
		unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME, Bits: unix.PerfBitSampleIDAll})
	s := New(Config{Format: &f, Sink: &k, Proc: "/proc", MaxStack: 2048,
		Processes: &madeProcesses{lines: map[uint32]int{100: 1}}})
	le := binary.LittleEndian
	body := le.AppendUint64(le.AppendUint64(nil, 1), 0x1234)
	body = le.AppendUint64(le.AppendUint32(le.AppendUint32(body, 100), 101), 1000)
	for range 2 {
		if err := s.Record(sessiontest.ARecord(perfring.RecordSample, body...)); err != nil {
			t.Fatal(err)
		}
	}
	var types []perfring.RecordType
	for _, r := range k.Records {
		types = append(types, r.Type())
	}
	if want := []perfring.RecordType{perfring.RecordComm, perfring.RecordComm, perfring.RecordMmap2,
		perfring.RecordSample, perfring.RecordSample}; !slices.Equal(types, want) {
		t.Errorf("%v, want %v", types, want)
	}
}
