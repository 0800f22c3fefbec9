package syscap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/perfring"
	"unspool/perfring/recordtest"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// cpuClock is an event as a recording opens it.
func cpuClock(name string, id uint64) perfring.Attr {
	return perfring.Attr{Name: name, IDs: []uint64{id}, PerfEventAttr: unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Sample: 999, Bits: unix.PerfBitSampleIDAll,
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_CALLCHAIN,
	}}
}

// session writes a capture of records that are made by hand.
type session struct {
	t testing.TB
	*Writer
	records *replay.Replay
	format  perfring.SampleFormat
	out     bytes.Buffer
	time    uint64
}

// begin begins a capture of a recording of these events, and a profile that has frames of these names.
func begin(t testing.TB, o Options, events []string, names ...string) *session {
	t.Helper()
	var attrs []perfring.Attr
	p := profiletest.New(&profile.Profile{Images: []profile.Image{{Name: "lib.so"}}})
	for i, name := range events {
		attrs = append(attrs, cpuClock(name, uint64(i+1)))
		p.Events = append(p.Events, profile.Event{Name: name})
	}
	for _, name := range names {
		p.Frame(profile.Frame{Name: name, Known: true})
	}
	path := filepath.Join(t.TempDir(), "perf.data")
	data, err := perfdata.Create(perfdata.Options{Path: path, Events: attrs,
		CommandLine: []string{"unspool", "record"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	s := &session{t: t, records: replay.NewRecorded(vmas.NewTable("")),
		format: perfring.NewFormat(&attrs[0].PerfEventAttr), time: 1000}
	s.Writer = New(&s.out, r, o)
	s.Begin(p.Profile)
	return s
}

// record passes on a record that an encoder made, 10 ns after the last one.
func (s *session) record(encode func(id *perfring.SampleID) ([]byte, error)) {
	s.t.Helper()
	s.time += 10
	b, err := encode(&perfring.SampleID{Time: s.time, CPU: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	s.replay(b, &s.format, s.time)
}

// replay hands on what a record says.
func (s *session) replay(b []byte, f *perfring.SampleFormat, time uint64) {
	s.t.Helper()
	c, err := s.records.Record(b, f)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Record(c, f, time)
}

func (s *session) comm(pid uint32, comm string) {
	s.record(func(id *perfring.SampleID) ([]byte, error) {
		return perfring.AppendComm(nil, &s.format, &perfring.Comm{PID: pid, TID: pid, Comm: []byte(comm)}, id)
	})
}

func (s *session) task(t perfring.RecordType, task perfring.Task) {
	s.record(func(id *perfring.SampleID) ([]byte, error) {
		return recordtest.AppendTask(nil, &s.format, t, &task, id)
	})
}

func (s *session) mmap(m perfring.Mmap2) {
	s.record(func(id *perfring.SampleID) ([]byte, error) { return perfring.AppendMmap2(nil, &s.format, &m, id) })
}

// at is an address with its frame; a marker has none.
type at struct {
	addr  uint64
	frame int32
}

// sample hands on a sample of the first event.
func (s *session) sample(pid uint32, chain ...at) {
	s.time += 10
	smp := perfring.Sample{Misc: unix.PERF_RECORD_MISC_USER, ID: 1, PID: pid, TID: pid + 1, Time: s.time, CPU: 2}
	var frames []int32
	for _, a := range chain {
		smp.Callchain = le.AppendUint64(smp.Callchain, a.addr)
		if a.addr < perfring.ContextMax {
			frames = append(frames, a.frame)
		}
	}
	of := profile.Thread{PID: pid, TID: pid + 1, Program: s.process(pid).comm}
	s.profile.Threads = append(s.profile.Threads, of)
	s.Sample(&smp, frames, int32(len(s.profile.Threads)-1))
}

// finish ends the capture and reads it.
func (s *session) finish() captured {
	s.t.Helper()
	if err := s.Finish(); err != nil {
		s.t.Fatal(err)
	}
	return mustParse(s.t, s.out.Bytes())
}

var user = at{perfring.ContextUser, -1}

func TestRecordsBecomeFrames(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "work")
	early, err := perfring.AppendMmap2(nil, &s.format,
		&perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER | unix.PERF_RECORD_MISC_MMAP_BUILD_ID, PID: 7, TID: 7,
			Addr: 0x1000, Len: 0x1000, Offset: 0x2000,
			Prot: unix.PROT_EXEC, Path: []byte("/bin/early"), BuildID: []byte{0xab, 0xcd}}, &perfring.SampleID{})
	if err != nil {
		t.Fatal(err)
	}
	format := s.format.AllowBuildIDs()
	s.replay(early, &format, 0)
	s.comm(7, "shell")
	s.task(perfring.RecordFork, perfring.Task{PID: 8, PPID: 7, TID: 8, PTID: 7})
	s.task(perfring.RecordFork, perfring.Task{PID: 8, PPID: 8, TID: 9, PTID: 8}) // a thread
	s.comm(8, "program")
	s.mmap(perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 8, Addr: 0x5000, Len: 0x1000, Inode: 99,
		Prot: unix.PROT_EXEC, Path: []byte("/bin/late")})
	s.mmap(perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 8, Addr: 0x6000, Len: 0x1000,
		Prot: unix.PROT_READ, Path: []byte("/bin/data")})
	s.mmap(perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_KERNEL, PID: math.MaxUint32, Addr: 0x7000, Len: 0x1000,
		Prot: unix.PROT_EXEC, Path: []byte("[kernel]")})
	s.sample(8, user, at{0x5010, 0})
	s.record(func(id *perfring.SampleID) ([]byte, error) {
		return perfring.AppendLost(nil, &s.format, &perfring.Lost{Lost: 33}, id)
	})
	s.task(perfring.RecordExit, perfring.Task{PID: 8, PPID: 7, TID: 9, PTID: 7}) // a thread
	s.task(perfring.RecordExit, perfring.Task{PID: 8, PPID: 7, TID: 8, PTID: 7})
	s.profile.Problems = []string{"no names of lib.so"}
	s.profile.LostRecords = 33
	c := s.finish()
	var got []string
	for _, f := range c.frames {
		line := fmt.Sprintf("%d cpu %d", f.time, f.cpu)
		switch f.kind {
		case frameMap:
			line += fmt.Sprintf(" map %d %x %q", f.pid,
				[]uint64{le.Uint64(f.body), le.Uint64(f.body[8:]), le.Uint64(f.body[16:]), le.Uint64(f.body[24:])},
				bytes.TrimRight(f.body[32:], "\x00"))
		case frameProcess:
			line += fmt.Sprintf(" process %d %s", f.pid, f.text(0))
		case frameFork:
			line += fmt.Sprintf(" fork %d %d", f.pid, le.Uint32(f.body))
		case frameExit:
			line += fmt.Sprintf(" exit %d", f.pid)
		case frameSample:
			line += fmt.Sprintf(" sample %d %d %x", f.pid, le.Uint32(f.body[4:]), f.addrs())
		case frameMark:
			line += fmt.Sprintf(" mark %s %s %s", f.text(8), f.text(8+24), f.text(72))
		case frameLog:
			line += fmt.Sprintf(" log %d %s %s", le.Uint16(f.body), f.text(8), f.text(40))
		default:
			continue
		}
		got = append(got, line)
	}
	want := []string{
		`1010 cpu -1 map 7 [1000 2000 2000 0] "/bin/early\x00@abcd"`,
		"1020 cpu 1 fork 7 8",
		`1050 cpu 1 map 8 [5000 6000 0 63] "/bin/late"`,
		"1080 cpu 2 sample 8 9 [fffffffffffffe00 5010]",
		"1090 cpu 1 mark unspool lost 33 records were lost before this",
		"1110 cpu 1 exit 8",
		"1110 cpu -1 process 7 shell",
		"1080 cpu -1 process 8 program",
		"1110 cpu -1 log 16 unspool no names of lib.so",
		"1110 cpu -1 log 16 unspool 33 samples or other records were lost",
	}
	if !slices.Equal(got, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c.start != 1010 || c.end != 0 {
		t.Errorf("from %d to %d", c.start, c.end)
	}
}

// TestProcessNames has programs that others start, and a PID that is used twice.
func TestProcessNames(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "leaf")
	run := func(pid uint32, comm string, samples int) {
		s.comm(pid, comm)
		for range samples {
			s.sample(pid, user, at{0x5010, 0})
		}
	}
	fork := func(pid uint32) {
		s.task(perfring.RecordFork, perfring.Task{PID: pid, PPID: 7, TID: pid, PTID: 7})
	}
	run(7, "sh", 1)
	fork(8)
	run(8, "nice", 1)
	run(8, "setpriv", 1)
	run(8, "program", 3)
	fork(9)
	run(9, "worker", 3)
	run(9, "exiting", 1)
	fork(8) // its exit was lost
	run(8, "again", 1)
	fork(10)
	run(10, "nice", 1)
	run(10, "last", 1)
	fork(11)
	run(11, "unseen", 0)
	got := make(map[string]int)
	for _, f := range s.finish().frames {
		if f.kind == frameProcess {
			got[fmt.Sprintf("%d %s", f.pid, f.text(0))]++
		}
	}
	want := map[string]int{"7 sh": 1, "8 program": 1, "8 again": 1, "9 worker": 1, "10 last": 1, "11 unseen": 1}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestChains(t *testing.T) {
	kernel := at{perfring.ContextKernel, -1}
	for _, c := range []struct {
		name   string
		misc   uint16
		ip     uint64
		chain  []at
		frames []int32 // nil for those of the chain
		want   []uint64
	}{
		{"kernel and user", unix.PERF_RECORD_MISC_KERNEL, 1,
			[]at{kernel, {0xffffffff81000010, 0}, user, {0x1000, 1}}, nil,
			[]uint64{perfring.ContextKernel, 0xffffffff81000010, perfring.ContextUser, 0x1000}},
		{"no marker", unix.PERF_RECORD_MISC_KERNEL, 1, []at{{0xffffffff81000010, 0}}, nil,
			[]uint64{perfring.ContextKernel, 0xffffffff81000010}},
		{"no chain", unix.PERF_RECORD_MISC_KERNEL, 0xffffffff81000010, nil, []int32{0},
			[]uint64{perfring.ContextKernel, 0xffffffff81000010}},
		{"only a marker", unix.PERF_RECORD_MISC_USER, 0x1000, []at{user}, []int32{0},
			[]uint64{perfring.ContextUser, 0x1000}},
		{"kernel part of a user sample", unix.PERF_RECORD_MISC_USER, 0x1000, []at{kernel, {0xffffffff81000010, 0}},
			[]int32{0, 1},
			[]uint64{perfring.ContextKernel, 0xffffffff81000010, perfring.ContextUser, 0x1000}},
		{"zeroes at the end", unix.PERF_RECORD_MISC_USER, 0x1000, []at{user, {0x1000, 0}, {0, -1}}, []int32{0},
			[]uint64{perfring.ContextUser, 0x1000}},
		{"deferred user part", unix.PERF_RECORD_MISC_KERNEL, 1,
			[]at{kernel, {0xffffffff81000010, 0}, {perfring.ContextUserDeferred, -1}, {77, -1}}, []int32{0},
			[]uint64{perfring.ContextKernel, 0xffffffff81000010}},
		{"guest", unix.PERF_RECORD_MISC_GUEST_KERNEL, 1,
			[]at{{perfring.ContextGuestKernel, -1}, {0x10, 0}, user, {0x1000, 1}}, nil,
			[]uint64{perfring.ContextGuestKernel, 0x10, perfring.ContextUser, 0x1000}},
		{"unknown marker", unix.PERF_RECORD_MISC_USER, 1, []at{{perfring.ContextMax, -1}, {0x10, 0}}, nil,
			[]uint64{perfring.ContextGuest, 0x10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := begin(t, Options{}, []string{"cycles"}, "leaf", "root")
			smp := perfring.Sample{Misc: c.misc, ID: 1, IP: c.ip, PID: 5, TID: 5, Time: 5}
			frames := c.frames
			for _, a := range c.chain {
				smp.Callchain = le.AppendUint64(smp.Callchain, a.addr)
				if c.frames == nil && a.frame >= 0 {
					frames = append(frames, a.frame)
				}
			}
			s.profile.Threads = []profile.Thread{{PID: 5, TID: 5, Program: ":5"}}
			s.Sample(&smp, frames, 0)
			out := s.finish()
			if got := out.ofKind(frameSample)[0].addrs(); !slices.Equal(got, c.want) {
				t.Errorf("%x, want %x", got, c.want)
			}
			want := "5;leaf"
			if len(frames) > 1 {
				want += ";root"
			}
			if got := out.stacks(true); got[want] != 1 || !maps.Equal(got, out.stacks(false)) {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestNamesOfHostilePrograms(t *testing.T) {
	long := strings.Repeat("std::vector<", 20000)
	names := []string{"plain", "zero\x00in it", "new\nline", "not UTF-8 \xff\xfe", "", long, "Łódź",
		"\x7f\u009b1m\u202e", "- - Kernel - -"}
	want := []string{"plain", "zero�in it", "new�line", "not UTF-8 ��", "", long, "Łódź",
		"��1m�", "- - Kernel - -"}
	s := begin(t, Options{}, []string{"cycles"}, names...)
	s.comm(3, "co\nmm\xff")
	s.mmap(perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 3, Addr: 0, Len: math.MaxUint64,
		Prot: unix.PROT_EXEC, Path: []byte("/\xff/\x01")})
	for i := range names {
		s.sample(3, user, at{0x1000 + 16*uint64(i), int32(i)})
	}
	c := s.finish()
	for i := range names {
		for _, inclusive := range []bool{true, false} {
			if got, tag := c.name(3, 0x1000+16*uint64(i), inclusive); got != want[i] || tag != "lib.so" {
				t.Errorf("%q of %q, want %q", got[:min(len(got), 40)], tag, want[i])
			}
		}
	}
	if got := c.ofKind(frameProcess)[0].text(0); got != "co�mm�" {
		t.Errorf("process %q", got)
	}
}

func TestOneAddressOfSeveralFunctions(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "before", "after", "after", "neighbour")
	s.sample(3, user, at{0x1000, 0})
	s.sample(3, user, at{0x1000, 1}) // after an exec
	s.sample(3, user, at{0x1000, 2}) // another place of the same function
	s.sample(3, user, at{0x1000, 0})
	s.sample(4, user, at{0x1000, 1}) // another process
	s.sample(3, user, at{0x1001, 3})
	s.sample(3, user, at{0x1010, 3})
	s.sample(3, user, at{0x1020, 3})
	c := s.finish()
	want := map[string]int{"3;before": 2, "3;after": 2, "4;after": 1, "3;neighbour": 3}
	for _, inclusive := range []bool{true, false} {
		if got := c.stacks(inclusive); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	for i, f := range c.ofKind(frameSample) {
		if got, kept := f.addrs()[1], i != 1 && i != 2 && i != 5; got >= firstMadeUp == kept {
			t.Errorf("sample %d: %#x", i, got)
		}
	}
	if n := len(c.files["__symbols__"]); n > 7*symbolSize+100 { // 1010 and 1020 are one range
		t.Errorf("__symbols__ has %d bytes", n)
	}
}

func TestSamplesOfProcessesThatNoRecordNames(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "work")
	for _, pid := range []uint32{0, 12, math.MaxUint32} {
		s.sample(pid, user, at{0x1000, 0})
	}
	s.task(perfring.RecordExit, perfring.Task{PID: 12, TID: 12})
	s.sample(12, user, at{0x1000, 0}) // another of its threads
	c := s.finish()
	var got []string
	for _, f := range c.ofKind(frameProcess) {
		got = append(got, f.text(0))
	}
	if want := []string{"swapper", ":12", "(exited)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := map[string]int{"0;work": 1, "12;work": 2, "-1;work": 1}; !maps.Equal(c.stacks(true), want) {
		t.Errorf("%v", c.stacks(true))
	}
}

func TestFramesAreNoLargerThanTheFormatAllows(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "leaf", "deep")
	s.mmap(perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 3, Len: 1, Prot: unix.PROT_EXEC,
		Path: bytes.Repeat([]byte("x"), maxFrame-56-100)})
	s.mmap(perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 3, Len: 1, Prot: unix.PROT_EXEC,
		Path: bytes.Repeat([]byte("\xff"), maxFrame/2)})
	for _, n := range []int{maxAddrs - 1, maxAddrs, maxAddrs + 1000} {
		chain := []at{user, {0x1000, 0}}
		for i := range n - 1 {
			chain = append(chain, at{0x2000 + uint64(i%100), 1})
		}
		s.sample(3, chain...)
	}
	c := s.finish()
	for i, want := range []int{maxAddrs, maxAddrs, maxAddrs} {
		if got := len(c.ofKind(frameSample)[i].addrs()); got != want {
			t.Errorf("%d addresses, want %d", got, want)
		}
	}
	if got := len(c.ofKind(frameMap)); got != 1 {
		t.Errorf("%d mappings", got)
	}
	var logs []string
	for _, f := range c.ofKind(frameLog) {
		logs = append(logs, f.text(40))
	}
	if len(logs) != 2 || !strings.HasPrefix(logs[0], "2 stacks are deeper") ||
		!strings.HasPrefix(logs[1], "1 mappings") {
		t.Errorf("%q", logs)
	}
}

func TestSeveralEventsAreRoots(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles", "faults"}, "work", "sys")
	s.sample(3, user, at{0x1000, 0})
	s.sample(3, at{perfring.ContextKernel, -1}, at{0xffffffff81000010, 1})
	fault := perfring.Sample{Misc: unix.PERF_RECORD_MISC_USER, ID: 2, PID: 3, TID: 3, Time: 5000, IP: 0x1000}
	s.Sample(&fault, []int32{0}, 0)
	c := s.finish()
	want := map[string]int{"3;work;cycles": 1, "3;sys;cycles": 1, "3;work;faults": 1}
	if got := c.stacks(false); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWithoutNames(t *testing.T) {
	s := begin(t, Options{NoNames: true}, []string{"cycles"}, "before", "after")
	s.sample(3, user, at{0x1000, 0})
	s.sample(3, user, at{0x1000, 1})
	c := s.finish()
	for _, f := range c.ofKind(frameSample) {
		if f.addrs()[1] != 0x1000 {
			t.Errorf("%x", f.addrs())
		}
	}
	if len(c.files) != 0 {
		t.Errorf("%d files", len(c.files))
	}
}

func TestNothingWasSampled(t *testing.T) {
	c := begin(t, Options{}, []string{"cycles"}).finish()
	if len(c.ofKind(frameSample)) != 0 || len(c.files) != 0 || c.start != 0 {
		t.Errorf("%+v", c)
	}
}

// If writing stops at any time, the capture has only complete frames.
func TestACaptureThatIsCutShort(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "work")
	var writes [][]byte
	s.Writer.out = writerFunc(func(b []byte) (int, error) {
		writes = append(writes, slices.Clone(b))
		return len(b), nil
	})
	for range 30000 {
		s.sample(3, user, at{0x1000, 0})
	}
	if len(writes) < 2 {
		t.Fatalf("%d writes", len(writes))
	}
	var all []byte
	for _, b := range writes {
		all = append(all, b...)
		c := mustParse(t, all)
		if c.end != 0 || len(c.ofKind(frameSample)) == 0 {
			t.Errorf("%d samples, end %d", len(c.ofKind(frameSample)), c.end)
		}
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestFinishCompletesTheHeaderOfAFile(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "work")
	path := filepath.Join(t.TempDir(), "x.syscap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.Writer.out = f
	s.sample(3, user, at{0x1000, 0})
	s.sample(3, user, at{0x1000, 0})
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := mustParse(t, b); c.start != 1010 || c.end != 1020 {
		t.Errorf("from %d to %d", c.start, c.end)
	}
}

func TestTheErrorOfTheOutput(t *testing.T) {
	s := begin(t, Options{}, []string{"cycles"}, "work")
	s.Writer.out = writerFunc(func([]byte) (int, error) { return 0, io.ErrShortWrite })
	s.sample(3, user, at{0x1000, 0})
	if err := s.Finish(); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

func TestTheNamesOfManyAddresses(t *testing.T) {
	const n = 20000 // several chunks
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("function", i))
	}
	s := begin(t, Options{}, []string{"cycles"}, names...)
	for i := range n {
		s.sample(3+uint32(i%7), user, at{0x1000 + 16*uint64(i), int32(i)})
	}
	c := s.finish()
	for i, f := range c.ofKind(frameSample) {
		for _, inclusive := range []bool{true, false} {
			if got, _ := c.name(f.pid, f.addrs()[1], inclusive); got != names[i] {
				t.Fatalf("%q, want %q", got, names[i])
			}
		}
	}
	t.Run("sysprof-cli", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.syscap")
		if err := os.WriteFile(path, s.out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		merged, err := parse([]byte(tool(t, "sysprof-cli", "--merge", path, path)))
		if len(merged.ofKind(frameSample)) != 2*n {
			t.Errorf("%d samples, %d were merged with themselves; %v", len(merged.ofKind(frameSample)), n, err)
		}
	})
}

func TestLost(t *testing.T) {
	if one, two := lost(1, "record", "records"), lost(2, "record", "records"); one != "1 record was lost" ||
		two != "2 records were lost" {
		t.Errorf("%q, %q", one, two)
	}
}

// TestTooManyAddresses: beyond the bound, frames have the address of their function, and no name if those are too
// many, too. That is said.
func TestTooManyAddresses(t *testing.T) {
	const n = 100
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("function", i))
	}
	s := begin(t, Options{}, []string{"cycles"}, names...)
	s.names.most = 10
	for i := range n {
		for j := range 2 {
			s.sample(3, user, at{0x1000 + 16*uint64(2*i+j), int32(i)})
		}
	}
	c := s.finish()
	shown := map[string]int{}
	for _, f := range c.ofKind(frameSample) {
		name, _ := c.name(f.pid, f.addrs()[1], false)
		shown[name]++
	}
	// Five functions at their addresses, ten at made-up ones, the others at none.
	if len(shown) != 16 || shown["function0"] != 2 || shown["function14"] != 2 || shown["function15"] != 0 {
		t.Errorf("%v", shown)
	}
	for _, want := range []string{"190 frames have the address of their function", "170 frames have no name"} {
		if !slices.ContainsFunc(s.profile.Problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
			t.Errorf("%q, want %s", s.profile.Problems, want)
		}
	}
}
