package commandlines

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/perfring"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// readableTexts are the command lines of processes; others have ended.
type readableTexts struct {
	process.Texts
	lines map[uint32]string
	reads int
	clock *uint64
}

func (r *readableTexts) Text(pid, _ uint32, name process.Text, _ int) (io.ReadCloser, error) {
	r.reads++
	*r.clock += 10
	line, ok := r.lines[pid]
	if !ok || name != process.Cmdline {
		return nil, errors.New("no such process")
	}
	return io.NopCloser(strings.NewReader(line)), nil
}

// A lineTest has the clock at which things happen, and what was written.
type lineTest struct {
	*Lines
	texts   *readableTexts
	clock   uint64
	written []perfdata.CommandLine
}

func newLineTest(lines map[uint32]string) *lineTest {
	l := &lineTest{clock: 1000}
	l.texts = &readableTexts{lines: lines, clock: &l.clock}
	l.Lines = New(l.texts, nil, func(c *perfdata.CommandLine) { l.written = append(l.written, *c) })
	l.Lines.now = func() uint64 { return l.clock }
	return l
}

// timedFormat is that of records with the time at their end.
var timedFormat = perfring.NewFormat(&unix.PerfEventAttr{
	Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME, Bits: unix.PerfBitSampleIDAll,
})

// exec has a process execute a program now. Its record is taken later, by the function that is returned.
func (l *lineTest) exec(pid uint32) (taken func()) {
	rec, err := perfring.AppendComm(nil, &timedFormat, &perfring.Comm{PID: pid, TID: pid, Comm: []byte("x"), Exec: true},
		&perfring.SampleID{PID: pid, TID: pid, Time: l.clock})
	if err != nil {
		panic(err)
	}
	l.Lines.Expect(rec, &timedFormat)
	return func() { l.Follow(&replay.Change{Kind: replay.Comm, PID: pid, TID: pid, Exec: true}, rec, &timedFormat) }
}

func (l *lineTest) samples(pid uint32, at uint64) {
	l.Sampled(&perfring.Sample{PID: pid, TID: pid, Time: at})
}

func (l *lineTest) exit(pid uint32) {
	l.Follow(&replay.Change{Kind: replay.Exit, PID: pid, TID: pid}, nil, new(perfring.SampleFormat))
}

// expect expects texts to have been written, and counts.
func (l *lineTest) expect(t *testing.T, kept, unread, leftOut uint64, texts ...string) {
	t.Helper()
	var got []string
	for _, c := range l.written {
		got = append(got, c.Text)
	}
	if g, w := strings.Join(got, " | "), strings.Join(texts, " | "); g != w {
		t.Errorf("written: %s\n   not: %s", g, w)
	}
	if l.kept != kept || l.unread != unread || l.leftOut != leftOut {
		t.Errorf("%d kept, %d unread, %d left out; want %d, %d, %d", l.kept, l.unread, l.leftOut, kept, unread, leftOut)
	}
}

// A program that is read when it is executed is known though it has ended before its first sample is taken.
func TestCommandLineOfAShortProgram(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{7: "cc1plus\x00dfa.cc\x00", 8: "idle\x00"})
	seven, eight := l.exec(7), l.exec(8)
	l.Read()
	clear(l.texts.lines)
	seven()
	eight()
	l.samples(7, 1005)
	l.exit(7)
	l.Settle(2000)
	l.Finish()
	l.expect(t, 1, 0, 0, "cc1plus dfa.cc")
	if c := l.written[0]; c.PID != 7 || c.Time != 1005 {
		t.Errorf("%+v", c)
	}
}

// What was read does not count for the program that the process had executed before, nor for another process with the
// PID; nor before all records up to then are taken.
func TestCommandLineOfAnotherProgram(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{7: "second\x00"})
	first := l.exec(7)
	l.clock += 50 // it executes another program before it is read
	second := l.exec(7)
	l.Read()
	first()
	l.samples(7, 1001)
	l.Settle(1040)
	l.expect(t, 0, 0, 0)
	second()
	l.samples(7, 1059)
	l.Settle(2000)
	l.expect(t, 1, 0, 0, "second")
	l.clock = 3000
	rec, err := perfring.AppendComm(nil, &timedFormat, &perfring.Comm{}, &perfring.SampleID{Time: l.clock})
	if err != nil {
		t.Fatal(err)
	}
	l.Follow(&replay.Change{Kind: replay.Fork, PID: 7, TID: 7, PPID: 1, PTID: 1}, rec, &timedFormat)
	l.samples(7, 3001)
	delete(l.texts.lines, 7)
	l.Settle(4000)
	l.Read()
	l.Finish()
	l.expect(t, 1, 1, 0, "second")
}

// A program that has ended by the time at which it would be read is not asked for.
func TestCommandLineOfAnEndedProgram(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{8: "runs\x00"})
	seven := l.exec(7)
	rec := binary.LittleEndian.AppendUint32(nil, uint32(perfring.RecordExit))
	rec = append(rec, 0, 0, 32, 0)
	for _, n := range []uint32{7, 1, 7, 1, 0, 0} { // PID, of the parent, TID, of the parent, time
		rec = binary.LittleEndian.AppendUint32(rec, n)
	}
	l.Lines.Expect(rec, new(perfring.SampleFormat))
	eight := l.exec(8)
	l.Read()
	seven()
	eight()
	l.samples(7, 1001)
	l.samples(8, 1002)
	l.exit(7)
	l.Settle(2000)
	l.Finish()
	l.expect(t, 1, 1, 0, "runs")
	if l.texts.reads != 1 {
		t.Errorf("%d reads", l.texts.reads)
	}
}

// What was read before a process executed another program is not of that.
func TestCommandLineBeforeExec(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{7: "sh\x00"})
	l.samples(7, 1001)
	l.Settle(1005)
	l.Read()
	l.clock += 50
	clear(l.texts.lines)
	l.exec(7)()
	l.samples(7, 1070)
	l.Settle(2000)
	l.Finish()
	l.expect(t, 0, 1, 0)
}

// In the midst of an exec there is no command line yet.
func TestCommandLineInTheMidstOfExec(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{7: ""})
	l.exec(7)()
	l.Read()
	l.texts.lines[7] = "there\x00"
	l.Read()
	l.samples(7, 1001)
	l.Settle(2000)
	l.expect(t, 1, 0, 0, "there")
}

// When a file is about to be complete, what was read counts if no record that is still to be taken speaks against it.
func TestCommandLinesOfAFile(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{7: "runs\x00", 8: "second\x00"})
	l.samples(7, 1001)
	l.samples(8, 1002)
	l.Settle(1005)
	second := l.exec(8)
	l.Read()
	l.Settle(1005)
	l.SettleSeen()
	l.expect(t, 1, 0, 0, "runs")
	second()
	l.samples(8, 1030)
	l.SettleSeen()
	l.expect(t, 2, 0, 0, "runs", "second")
}

// The last title counts, and in each piece of a recording all is written again.
func TestCommandLineChanges(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{7: "postgres\x00-D\x00x\x00"})
	l.samples(7, 1001)
	l.Settle(1500)
	l.Read()
	l.Settle(2000)
	l.texts.lines[7] = "postgres: writer"
	l.Restate()
	l.Settle(2000)
	l.expect(t, 0, 0, 0, "postgres -D x")
	l.samples(7, 3000)
	l.Settle(4000)
	l.Reread()
	l.Finish()
	l.expect(t, 1, 0, 0, "postgres -D x", "postgres -D x", "postgres: writer")
	if a, b := l.written[1].Time, l.written[2].Time; a != 3000 || b != 3000 {
		t.Errorf("of %d and %d", a, b)
	}
}

// Of very many programs only some are read, and what is left out is counted. Those that run when they are sampled have
// a part of the budget of their own.
func TestCommandLineBudget(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{})
	const many = 10_000
	for pid := uint32(1); pid <= many; pid++ {
		l.texts.lines[pid] = "storm\x00"
		l.exec(pid)()
		l.clock++
		if pid%mostWanted == 0 {
			l.budget = newReadBudget()
			l.Read()
		}
	}
	for len(l.executed) > 0 {
		l.Read()
	}
	if read := l.texts.reads; read == 0 || read > 2*int(mostReadTime/readPrice) {
		t.Errorf("%d of %d programs were read", read, many)
	}
	clear(l.texts.lines)
	l.texts.lines[many+1] = "runs\x00"
	l.samples(many+1, l.clock)
	for pid := uint32(1); pid <= many; pid++ {
		l.samples(pid, l.clock)
		l.exit(pid)
	}
	l.Settle(l.clock + 1)
	l.budget.Spend(l.budget.Has() - mostReadTime/2)
	l.Read()
	l.Finish()
	if l.kept+l.unread+l.leftOut != many+1 || l.leftOut < many/2 {
		t.Errorf("%d kept, %d unread, %d left out", l.kept, l.unread, l.leftOut)
	}
	if !slices.ContainsFunc(l.written, func(c perfdata.CommandLine) bool { return c.PID == many+1 && c.Text == "runs" }) {
		t.Error("a process that runs was not read")
	}
	if n := len(l.programs); n > many+1 || l.bytes > mostTexts {
		t.Errorf("%d programs, %d bytes", n, l.bytes)
	}
}

// No more programs are read than there are credits for.
func TestCommandLineCredits(t *testing.T) {
	t.Parallel()
	l := newLineTest(map[uint32]string{})
	l.budget = newReadBudget()
	l.budget.Left(time.Now().Add(time.Hour)) // so that it does not grow
	l.budget.Spend(mostReadTime/2 - 3*readPrice)
	for pid := uint32(1); pid <= 10; pid++ {
		l.texts.lines[pid] = "storm\x00"
		l.exec(pid)()
		l.samples(pid, l.clock)
		l.exit(pid)
	}
	for len(l.executed) > 0 {
		l.Read()
	}
	l.Settle(l.clock)
	l.Finish()
	if l.texts.reads != 3 || l.kept != 3 || l.leftOut != 7 {
		t.Errorf("%d reads, %d kept, %d left out", l.texts.reads, l.kept, l.leftOut)
	}
}

// A recording of another format, and of others, has no command lines.
func TestNoCommandLines(t *testing.T) {
	t.Parallel()
	var c *Lines
	c.Sampled(&perfring.Sample{PID: 1})
	c.Follow(&replay.Change{}, nil, nil)
	c.Expect(nil, nil)
	c.Settle(1)
	c.Read()
	c.Reread()
	c.Restate()
	c.Finish()
	c.Sweep(nil)
}
