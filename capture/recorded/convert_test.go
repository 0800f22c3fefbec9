package recorded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/perfring/recordtest"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// A rawRecording is a hand-made recording with raw stacks.
type rawRecording struct {
	events   []perfring.Attr
	features map[perfdata.Feature][]byte
	records  []perfring.Record
}

var le = binary.LittleEndian

// rawEvents are an event with stacks, ID 1, and perf's dummy event, ID 2.
func rawEvents() []perfring.Attr {
	stacks := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER7, Sample: 1000,
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: sessiontest.UserRegs, Sample_stack_user: 64,
		Bits: unix.PerfBitSampleIDAll | unix.PerfBitExcludeCallchainUser,
	}
	dummy := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER7, Config: unix.PERF_COUNT_SW_DUMMY,
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME, Bits: unix.PerfBitSampleIDAll | unix.PerfBitMmap | unix.PerfBitMmap2,
	}
	return []perfring.Attr{{Name: "cpu-clock", PerfEventAttr: stacks, IDs: []uint64{1}},
		{Name: "dummy:u", PerfEventAttr: dummy, IDs: []uint64{2}}}
}

func rawAttr(a *unix.PerfEventAttr) []byte {
	b, _ := binary.Append(nil, le, *a)
	return b[:unix.PERF_ATTR_SIZE_VER7]
}

func (r *rawRecording) data() (b []byte) {
	for _, rec := range r.records {
		b = append(b, rec...)
	}
	return b
}

// pipe is the recording as perf writes it to a pipe.
func (r *rawRecording) pipe() []byte {
	b := append([]byte("PERFILE2"), 16, 0, 0, 0, 0, 0, 0, 0)
	for _, e := range r.events {
		body := rawAttr(&e.PerfEventAttr)
		for _, id := range e.IDs {
			body = le.AppendUint64(body, id)
		}
		b = append(b, sessiontest.ARecord(perfring.RecordHeaderAttr, body...)...)
	}
	for f, data := range r.features {
		body := append(le.AppendUint64(nil, uint64(f)), data...)
		b = append(b, sessiontest.ARecord(perfring.RecordHeaderFeature, body...)...)
	}
	return append(b, r.data()...)
}

// file is the recording as perf writes it to a file.
func (r *rawRecording) file() []byte {
	const header, attrSize = 104, unix.PERF_ATTR_SIZE_VER7
	var ids, attrs []byte
	for _, e := range r.events {
		attrs = append(attrs, rawAttr(&e.PerfEventAttr)...)
		attrs = le.AppendUint64(attrs, uint64(header+len(ids)))
		attrs = le.AppendUint64(attrs, uint64(8*len(e.IDs)))
		for _, id := range e.IDs {
			ids = le.AppendUint64(ids, id)
		}
	}
	data := r.data()
	at := header + len(ids) + len(attrs)
	var bits [4]uint64
	var table, contents []byte
	var numbers []perfdata.Feature
	for f := range r.features {
		numbers = append(numbers, f)
	}
	slices.Sort(numbers)
	end := at + len(data) + 16*len(numbers)
	for _, f := range numbers {
		bits[f/64] |= 1 << (f % 64)
		table = le.AppendUint64(table, uint64(end+len(contents)))
		table = le.AppendUint64(table, uint64(len(r.features[f])))
		contents = append(contents, r.features[f]...)
	}
	b := []byte("PERFILE2")
	for _, x := range []int{header, attrSize + 16, header + len(ids), len(attrs), at, len(data), 0, 0} {
		b = le.AppendUint64(b, uint64(x))
	}
	for _, x := range bits {
		b = le.AppendUint64(b, x)
	}
	return slices.Concat(b, ids, attrs, data, table, contents)
}

const secret = "SECRETS!"

// secretSample holds a secret in a register and in its stack.
func secretSample(time uint64, stack int) perfring.Record {
	s := sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64,
		BP: le.Uint64([]byte(secret)), IP: 0x1234, SP: 0x7000,
		Stack: bytes.Repeat([]byte(secret), stack/8), DynSize: uint64(stack)}
	return s.At(time)
}

// everyType is a recording with records of all types, one after the other.
func everyType(t testing.TB) *rawRecording {
	t.Helper()
	events := rawEvents()
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	r := &rawRecording{events: events, features: map[perfdata.Feature][]byte{
		perfdata.Hostname:  append([]byte{64, 0, 0, 0}, append([]byte("elsewhere"), make([]byte, 55)...)...),
		perfdata.OSRelease: append([]byte{64, 0, 0, 0}, append([]byte("1.2.3"), make([]byte, 59)...)...),
	}}
	time := uint64(1000)
	add := func(rec []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		r.records = append(r.records, rec)
		time += 10
	}
	id := func() *perfring.SampleID { return &perfring.SampleID{PID: 7, TID: 7, Time: time, ID: 1} }
	add(perfring.AppendComm(nil, &f, &perfring.Comm{PID: 7, TID: 7, Comm: []byte("seven"), Exec: true}, id()))
	add(perfring.AppendMmap(nil, &f,
		&perfring.Mmap{PID: 7, TID: 7, Misc: unix.PERF_RECORD_MISC_USER, Addr: 0x1000, Len: 0x1000,
			Path: []byte("//anon")}, id()))
	add(perfring.AppendMmap2(nil, &f,
		&perfring.Mmap2{PID: 7, TID: 7, Misc: unix.PERF_RECORD_MISC_USER, Addr: 0x3000, Len: 0x1000, Maj: 1, Min: 2,
			Inode: 3,
			Prot:  unix.PROT_EXEC, Path: []byte("/nowhere/at/all")}, id()))
	add(recordtest.AppendTask(nil, &f, perfring.RecordFork, &perfring.Task{PID: 8, TID: 8, PPID: 7, PTID: 7,
		Time: time}, id()))
	add(secretSample(time, 64), nil)
	add(recordtest.AppendTask(nil, &f, perfring.RecordExit, &perfring.Task{PID: 8, TID: 8, PPID: 7, PTID: 7,
		Time: time}, id()))
	add(perfring.AppendLost(nil, &f, &perfring.Lost{ID: 1, Lost: 5}, id()))
	add(sessiontest.RawRecord(perfring.RecordLostSamples, time, 1, 3, 0, 0, 0, 0, 0, 0, 0), nil)
	for typ := perfring.RecordThrottle; typ <= perfring.RecordCallchainDeferred+1; typ++ {
		switch typ {
		case perfring.RecordFork, perfring.RecordSample, perfring.RecordMmap2, perfring.RecordLostSamples:
		default:
			fields := 24
			if typ == perfring.RecordBPFEvent {
				fields = 16 // as it has: it would be cut to that
			}
			add(sessiontest.RawRecord(typ, time, 2, bytes.Repeat([]byte{byte(typ)}, fields)...), nil)
		}
	}
	for typ := perfring.RecordIDIndex; typ <= perfring.RecordBPFMetadata+1; typ++ {
		switch typ {
		case perfring.RecordAuxtrace, perfring.RecordHeaderFeature, perfring.RecordCompressed,
			perfring.RecordCompressed2:
		default:
			add(sessiontest.ARecord(typ, bytes.Repeat([]byte{byte(typ)}, 32)...), nil)
		}
	}
	for size := range 20 { // odd ones
		add(sessiontest.ARecord(500, bytes.Repeat([]byte{0xee}, size)...), nil)
	}
	add(sessiontest.ARecord(perfring.RecordAuxtrace, slices.Concat(le.AppendUint64(nil, 1000), make([]byte, 32))...), nil)
	r.records = append(r.records, bytes.Repeat([]byte("trace"), 200)) // its data
	add(secretSample(time, 64), nil)
	add(secretSample(time, 60000), nil)
	add(sessiontest.ARecord(perfring.RecordFinishedRound), nil)
	return r
}

// inMemory makes a file that is in memory only, as the files of most tests are.
func inMemory(t testing.TB, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("recording", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd))
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// convertBytes converts a recording in memory, to a file of its own unless change says where.
func convertBytes(t testing.TB, input []byte,
	change func(o *Options)) (output []byte, out Conversion, err error) {
	t.Helper()
	in := inMemory(t, input)
	defer in.Close()
	o := Options{Input: in.Name(), Cache: "/", MaxStack: 100} // a folder without a cache
	if change != nil {
		change(&o)
	}
	if o.Output == "" {
		o.Output = filepath.Join(t.TempDir(), "out")
	}
	out, err = Convert(context.Background(), o)
	output, rerr := os.ReadFile(o.Output)
	if out.Started && rerr != nil {
		t.Fatal(rerr)
	}
	return output, out, err
}

// readRecords reads a recording that must be whole.
func readRecords(t testing.TB, data []byte) (records []perfring.Record, r *perfdata.Reader) {
	t.Helper()
	file := inMemory(t, data)
	t.Cleanup(func() { file.Close() })
	r, err := perfdata.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, slices.Clone(rec))
		if rec.Type() == perfring.RecordAuxtrace {
			var trace perfring.Record
			if err := r.Payload(func(b []byte) error { trace = append(trace, b...); return nil }); err != nil {
				t.Fatal(err)
			}
			records = append(records, trace)
		}
	}
	if err := r.FeatureDamage(); err != nil {
		t.Fatal(err)
	}
	return records, r
}

func holdsSecret(b []byte) bool { return bytes.Contains(b, []byte(secret[:7])) }

// TestConvertLeavesOutWhatARingHeldBefore: the kernel makes some records too long while there are other
// profilers, and does not write their ends.
func TestConvertLeavesOutWhatARingHeldBefore(t *testing.T) {
	r := everyType(t)
	long := append(sessiontest.RawRecord(perfring.RecordBPFEvent, 5000, 2, make([]byte, 16)...), secret...)
	le.PutUint16(long[6:], uint16(len(long)))
	r.records = append(r.records, long)
	output, _, err := convertBytes(t, r.file(), nil)
	if err != nil || holdsSecret(output) {
		t.Errorf("%v; has the secret: %v", err, holdsSecret(output))
	}
	records, reader := readRecords(t, output)
	if at, ok := reader.Format(records[len(records)-1]).Time(records[len(records)-1]); !ok || at != 5000 {
		t.Errorf("the last record is of %d", at)
	}
}

func TestConvertCarriesRecordsOfEveryType(t *testing.T) {
	r := everyType(t)
	for _, layout := range []struct {
		name  string
		input []byte
	}{{"file", r.file()}, {"pipe", r.pipe()}} {
		for _, c := range []struct{ jobs, level int }{{1, 0}, {1, 3}, {2, 0}, {3, 1}} {
			t.Run(fmt.Sprintf("%s, -j %d -z%d", layout.name, c.jobs, c.level), func(t *testing.T) {
				output, out, err := convertBytes(t, layout.input, func(o *Options) {
					o.Jobs, o.Compress = c.jobs, c.level
				})
				if err != nil {
					t.Fatal(err)
				}
				if holdsSecret(output) {
					t.Error("stack bytes were handed on")
				}
				got, reader := readRecords(t, output)
				if h := reader.Text(perfdata.Hostname); h != "elsewhere" {
					t.Errorf("hostname %q", h)
				}
				if reader.Feature(perfdata.NrCPUs) != nil {
					t.Error("this machine was told of")
				}
				events, want := reader.Events(), r.events[1].PerfEventAttr
				want.Size = 112 // as it is written, whatever it was
				if len(events) != 2 || events[0].Name != "cpu-clock" || events[1].Name != "dummy" ||
					events[1].PerfEventAttr != want {
					t.Errorf("events %+v", events)
				}
				checkCarried(t, got, r.records)
				if st := out.Stats; st.Samples != 3 || st.User != 3 || st.Malformed != 0 || st.Lost != 8 ||
					st.Throttled != 1 || st.StackCopied != 64+64+60000 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// checkCarried compares the records of a conversion with those of its input. Samples are only counted.
// Records without a time are not sorted among the others.
func checkCarried(t *testing.T, got, want []perfring.Record) {
	t.Helper()
	events := rawEvents()
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	split := func(records []perfring.Record) (timed, others []string) {
		for _, r := range records {
			switch _, ok := f.Time(r); {
			case r.Type() == perfring.RecordFinishedRound:
			case r.Type() == perfring.RecordSample:
				timed = append(timed, "SAMPLE")
			case ok:
				timed = append(timed, fmt.Sprintf("%s % x", r.Type(), []byte(r)))
			default:
				others = append(others, fmt.Sprintf("%s % x", r.Type(), []byte(r)))
			}
		}
		return timed, others
	}
	gotTimed, gotOthers := split(got)
	wantTimed, wantOthers := split(want)
	for _, c := range [][2][]string{{gotTimed, wantTimed}, {gotOthers, wantOthers}} {
		if slices.Equal(c[0], c[1]) {
			continue
		}
		t.Errorf("%d records, %d expected", len(c[0]), len(c[1]))
		for i := range min(len(c[0]), len(c[1])) {
			if c[0][i] != c[1][i] {
				t.Errorf("record %d is %.200s\nwant %.200s", i, c[0][i], c[1][i])
				break
			}
		}
	}
}

// before is what is left when the records are cut after n bytes: those that are whole. An AUXTRACE record is
// not without its data.
func (r *rawRecording) before(n int) []perfring.Record {
	whole := 0
	for i, rec := range r.records {
		if n -= len(rec); n < 0 {
			break
		}
		if rec.Type() != perfring.RecordAuxtrace {
			whole = i + 1
		}
	}
	return r.records[:whole]
}

// everyByte reports whether what is cut and damaged is so at every byte, which takes half a minute.
func everyByte() bool { return os.Getenv("UNSPOOL_ORACLE") == "all" }

// A recording that is cut anywhere is converted up to the cut, into a complete one, and an error says so.
func TestConvertOfARecordingCutAtEveryByte(t *testing.T) {
	t.Parallel()
	whole := everyType(t)
	whole.records = slices.DeleteFunc(whole.records, func(r perfring.Record) bool {
		return len(r) > 2000 || r.Type() > 1 && r.Type() < perfring.RecordSample &&
			r.Type() != perfring.RecordFork ||
			r.Type() > perfring.RecordMmap2 && r.Type() < perfring.RecordAuxtrace ||
			r.Type() > perfring.RecordAuxtraceInfo+2 && len(r) < 1000
	})
	for _, layout := range []struct {
		name  string
		input []byte
		data  int // size of what stands before the records
	}{
		{"file", whole.file(), 0}, {"pipe", whole.pipe(), len(whole.pipe()) - len(whole.data())},
	} {
		t.Run(layout.name, func(t *testing.T) {
			data := bytes.Index(layout.input, whole.data())
			ends := map[int]bool{} // where a pipe may end
			for at, i := layout.data, 0; at > 0 && i < len(whole.records); i++ {
				ends[at] = i == 0 || whole.records[i-1].Type() != perfring.RecordAuxtrace
				at += len(whole.records[i])
			}
			trace := bytes.Index(layout.input, []byte("trace"))
			for n := range layout.input {
				if n > trace && n < trace+900 && n%50 > 0 {
					continue // a byte of the trace is like any other
				}
				if !everyByte() && n%5 > 0 && !ends[n] && !ends[n+1] {
					continue
				}
				output, out, err := convertBytes(t, layout.input[:n], func(o *Options) { o.Jobs = 1 + n%2 })
				if holdsSecret(output) {
					t.Fatalf("cut at %d: stack bytes were handed on", n)
				}
				if err == nil && n >= layout.data && !ends[n] {
					t.Fatalf("cut at %d: no error", n)
				}
				var damage *perfdata.DamageError
				if errors.As(err, &damage) && damage.Offset > int64(n) {
					t.Fatalf("cut at %d: damage at %d", n, damage.Offset)
				}
				want := whole.before(n - data)
				if !out.Started {
					if len(want) > 0 {
						t.Fatalf("cut at %d: nothing of %d records, %v", n, len(want), err)
					}
					continue
				}
				got, _ := readRecords(t, output)
				if checkCarried(t, got, want); t.Failed() {
					t.Fatalf("cut at %d", n)
				}
			}
		})
	}
}

// No byte of a stack is written, whatever is changed in the samples.
func TestConvertOfDamagedSamplesKeepsStacksBack(t *testing.T) {
	t.Parallel()
	whole := &rawRecording{events: rawEvents()}
	for time := range uint64(20) {
		whole.records = append(whole.records, secretSample(time+1, 64))
	}
	file, data := whole.file(), whole.data()
	at := bytes.Index(file, data)
	rnd := rand.New(rand.NewSource(1))
	times := 400
	if everyByte() {
		times = 2000
	}
	for n := range times {
		damaged := slices.Clone(file)
		for range 1 + rnd.Intn(3) {
			i := rnd.Intn(len(data))
			if i%len(whole.records[0]) >= 4 { // another type would make it another record
				damaged[at+i] = byte(rnd.Intn(256))
			}
		}
		output, out, _ := convertBytes(t, damaged, nil)
		if holdsSecret(output) {
			t.Fatalf("%d: stack bytes were handed on", n)
		}
		if out.Started {
			readRecords(t, output)
		}
	}
}

func TestConvertOfManyBlocksIsTheSameOnEveryNumberOfCores(t *testing.T) {
	r := &rawRecording{events: rawEvents()}
	f := perfring.NewFormat(&r.events[0].PerfEventAttr)
	rnd := rand.New(rand.NewSource(2))
	time, count := uint64(1000), 0
	for range 60 { // rounds of records that are out of order by up to one round
		for range 20 {
			at := time + uint64(rnd.Intn(200))
			r.records = append(r.records, secretSample(at, 8*(1+rnd.Intn(7000))))
			count++
			comm, err := perfring.AppendComm(nil, &f, &perfring.Comm{PID: 7, TID: 7, Comm: fmt.Append(nil, at)},
				&perfring.SampleID{PID: 7, TID: 7, Time: at, ID: 2})
			if err != nil {
				t.Fatal(err)
			}
			r.records = append(r.records, comm)
		}
		time += 100
		r.records = append(r.records, sessiontest.ARecord(perfring.RecordFinishedRound))
	}
	input := r.file()
	one, out, err := convertBytes(t, input, nil)
	if err != nil || out.Stats.Samples != uint64(count) || out.Stats.Malformed != 0 {
		t.Fatalf("%+v, %v", out.Stats, err)
	}
	got, _ := readRecords(t, one)
	last := uint64(0)
	for _, rec := range got {
		if at, ok := f.Time(rec); ok {
			if at < last {
				t.Fatalf("%d behind %d", at, last)
			}
			last = at
		}
	}
	for jobs := 2; jobs <= 5; jobs++ {
		several, _, err := convertBytes(t, input, func(o *Options) { o.Jobs = jobs })
		if err != nil || !bytes.Equal(one, several) {
			t.Errorf("-j %d: %d bytes instead of %d, %v", jobs, len(several), len(one), err)
		}
	}
}

// What the kernel has sent is passed on at the end of the next round, even if the recorder waits for the
// reader.
func TestConvertOfAPipeThatStalls(t *testing.T) {
	for _, jobs := range []int{1, 2} {
		dir := t.TempDir()
		in := filepath.Join(dir, "in")
		if err := unix.Mkfifo(in, 0o600); err != nil {
			t.Fatal(err)
		}
		out, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		ended := make(chan error)
		go func() {
			output := fmt.Sprintf("/dev/fd/%d", to.Fd())
			_, err := Convert(context.Background(),
				Options{Input: in, Output: output, Cache: dir, MaxStack: 100, Jobs: jobs})
			to.Close() // the end, for the reader
			ended <- err
		}()
		w, err := os.OpenFile(in, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		round := func(time uint64) []byte {
			r := rawRecording{events: rawEvents(),
				records: []perfring.Record{secretSample(time, 64), sessiontest.ARecord(perfring.RecordFinishedRound)}}
			if time == 1 {
				return r.pipe()
			}
			return r.data()
		}
		write := func(b []byte, piece int) {
			for part := range slices.Chunk(b, piece) {
				if _, err := w.Write(part); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
		write(round(1), 41)
		write(round(2), 7)
		r, err := perfdata.Open(fmt.Sprintf("/proc/self/fd/%d", out.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		for time := uint64(1); time <= 4; time++ {
			rec, err := r.Next()
			if err != nil || rec.Type() != perfring.RecordSample {
				t.Fatalf("%v, %v", rec, err)
			}
			if at, _ := r.Format(rec).Time(rec); at != time {
				t.Fatalf("sample of %d, %d expected", at, time)
			}
			if rec, err = r.Next(); err != nil || rec.Type() != perfring.RecordFinishedRound {
				t.Fatalf("%v, %v", rec, err)
			}
			write(round(time+2), 50) // only now
		}
		w.Close()
		for err == nil {
			_, err = r.Next()
		}
		if err != io.EOF {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.Close()
	}
}

// The processes of a recording are gone: a PID in it may be that of another process by now.
func TestConvertTakesOnlyTheRecordedEventsBuildIDs(t *testing.T) {
	events := rawEvents()
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	rec, err := perfring.AppendMmap2(nil, &f,
		&perfring.Mmap2{PID: 7, TID: 7, Misc: unix.PERF_RECORD_MISC_USER, Addr: 0x1000, Len: 0x1000, Inode: 4711,
			Prot: unix.PROT_EXEC, Path: []byte("/nowhere/at/all")}, &perfring.SampleID{PID: 7, TID: 7, Time: 5, ID: 2})
	if err != nil {
		t.Fatal(err)
	}
	honest := slices.Clone(rec)
	rec[5] |= unix.PERF_RECORD_MISC_MMAP_BUILD_ID >> 8
	r := &rawRecording{events: events, records: []perfring.Record{rec}}
	output, _, err := convertBytes(t, r.file(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := readRecords(t, output)
	checkCarried(t, got, []perfring.Record{honest})
}

func TestConvertKeepsTheIdleTask(t *testing.T) {
	r := &rawRecording{events: rawEvents(), records: []perfring.Record{
		sessiontest.RawSample{Misc: unix.PERF_RECORD_MISC_KERNEL, Chain: []uint64{^uint64(127), 9}}.At(1),
		sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_GUEST_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64,
			Stack: make([]byte, 64), DynSize: 64}.At(2),
	}}
	output, out, err := convertBytes(t, r.file(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := readRecords(t, output); len(got) != 2 || out.Stats.Samples != 2 || out.Stats.User != 0 {
		t.Errorf("%d records, %+v", len(got), out.Stats)
	}
}

func TestConvertRefusesToWriteOverItsInput(t *testing.T) {
	r := &rawRecording{events: rawEvents(), records: []perfring.Record{secretSample(1, 64)}}
	input := r.file()
	for _, c := range []struct {
		name   string
		change func(o *Options) error
	}{
		{"same name", func(o *Options) error { o.Output = o.Input; return nil }},
		{"link", func(o *Options) error { return os.Link(o.Input, o.Output) }},
		{"input is the output's backup", func(o *Options) error {
			o.Output = strings.TrimSuffix(o.Input, ".old")
			return os.WriteFile(o.Output, []byte("there"), 0o600)
		}},
	} {
		dir := t.TempDir()
		o := Options{Input: filepath.Join(dir, "in.old"), Output: filepath.Join(dir, "out"), MaxStack: 100}
		if err := errors.Join(os.WriteFile(o.Input, input, 0o600), c.change(&o)); err != nil {
			t.Fatal(err)
		}
		out, err := Convert(context.Background(), o)
		have, _ := os.ReadFile(o.Input)
		if err == nil || out.Started || !bytes.Equal(have, input) {
			t.Errorf("%s: %v, input of %d bytes", c.name, err, len(have))
		}
	}
}

func TestConvertSaysThatThereIsNothingToUnwind(t *testing.T) {
	r := everyType(t)
	r.events[0].PerfEventAttr.Sample_type &^= unix.PERF_SAMPLE_STACK_USER | unix.PERF_SAMPLE_REGS_USER
	r.records = []perfring.Record{sessiontest.RawRecord(perfring.RecordSwitch, 5, 1)}
	var notes []string
	output, _, err := convertBytes(t, r.file(), func(o *Options) {
		o.Note = func(s string) { notes = append(notes, s) }
	})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "no raw stacks") {
		t.Errorf("%v, %q", err, notes)
	}
	got, _ := readRecords(t, output)
	checkCarried(t, got, r.records)
}

func FuzzConvert(f *testing.F) {
	r := everyType(f)
	r.records = r.records[:len(r.records)-2]
	f.Add(r.file(), 1)
	f.Add(r.pipe(), 2)
	for _, recording := range inputs.Files(8, 64<<10, "../dist/inputs/*.data") {
		f.Add(recording, 1)
	}
	to := filepath.Join(f.TempDir(), "out") // making a folder takes as long as converting an input
	f.Fuzz(inputs.Many(f, func(t *testing.T, input []byte, jobs int) {
		defer costs.For(len(input)).Check(t)()
		output, out, err := convertBytes(t, input, func(o *Options) { o.Output, o.Jobs = to, 1+jobs&1 })
		os.Remove(to)
		if out.Started && err == nil {
			file := inMemory(t, output)
			defer file.Close()
			r, err := perfdata.Open(file.Name())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for err == nil {
				_, err = r.Next()
			}
			if err != io.EOF {
				t.Fatal(err)
			}
		}
	}))
}
