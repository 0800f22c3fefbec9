package profile

import (
	"encoding/binary"
	"maps"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// line adds a record as it comes from a recording.
func (c *commandLines) line(pid uint32, time uint64, text string) {
	c.add(perfdata.AppendCommandLine(nil, &perfdata.CommandLine{PID: pid, Time: time, Text: text}))
}

// A process has the command line of the program with most samples, and of that the last one, wherever in the recording
// it stands.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	c := newCommandLines()
	c.line(1, 10, "sh -c x")
	c.line(1, 22, "cc1plus dfa.cc")
	c.sample(1)
	c.begin(1, 20)
	c.sample(1)
	c.sample(1)
	c.begin(1, 30) // what it executes then is not known, and is sampled once
	c.sample(1)

	c.sample(2)
	c.begin(2, 20) // twice without a sample
	c.begin(2, 25)
	c.sample(2)
	c.sample(2)
	c.line(2, 5, "before")
	c.line(2, 22, "between")

	c.sample(3)
	c.line(3, 5, "postgres -D x")
	c.line(3, 5, "postgres: writer")

	c.line(4, 5, "was not sampled")
	c.begin(5, 5)
	c.sample(5)
	want := map[uint32]string{1: "cc1plus dfa.cc", 3: "postgres: writer"}
	if got := c.byPID(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := newCommandLines().byPID(); got != nil {
		t.Errorf("without any: %v", got)
	}
}

// The records of a recording say when a process executes another program, and when there is another with its PID.
func TestCommandLineRecords(t *testing.T) {
	t.Parallel()
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME, Bits: unix.PerfBitSampleIDAll,
	})
	l := newLoader(symbols.New(symbols.Options{Kallsyms: "/nonexistent"}))
	l.event = func(uint64) int { return 0 }
	l.p.Events = []Event{{Name: "cycles"}}
	samples := func(pid uint32, n int) {
		for range n {
			l.sample.PID, l.sample.TID = pid, pid
			l.addSample()
		}
	}
	took := func(time uint64, rec []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		l.record(rec, &format, time)
	}
	for _, pid := range []uint32{7, 8} {
		samples(pid, 2)
		took(0, perfdata.AppendCommandLine(nil, &perfdata.CommandLine{PID: pid, Time: 5, Text: "first"}), nil)
		took(0, perfdata.AppendCommandLine(nil, &perfdata.CommandLine{PID: pid, Time: 12, Text: "second"}), nil)
	}
	id := perfring.SampleID{Time: 10}
	rec, err := perfring.AppendComm(nil, &format, &perfring.Comm{PID: 7, TID: 7, Comm: []byte("x"), Exec: true}, &id)
	took(10, rec, err)
	fork := binary.LittleEndian.AppendUint32(nil, uint32(perfring.RecordFork))
	fork = append(fork, 0, 0, 48, 0)
	for _, n := range []uint32{8, 1, 8, 1, 10, 0, 8, 8, 10, 0} { // PID, parent's, TID, parent's, time, and then the ID
		fork = binary.LittleEndian.AppendUint32(fork, n)
	}
	took(10, fork, nil)
	samples(7, 1)
	samples(8, 1)
	if got, want := l.finish().CommandLines, map[uint32]string{7: "first", 8: "first"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// However many command lines a recording has, not all are kept, and that is said.
func TestManyCommandLines(t *testing.T) {
	t.Parallel()
	c := newCommandLines()
	text := strings.Repeat("x", perfdata.MostCommandLine)
	const many = mostCommandLineBytes/perfdata.MostCommandLine + 10
	for pid := range uint32(many) {
		c.line(pid, 5, text)
	}
	if c.bytes > mostCommandLineBytes || c.problem() != "10 command lines left out, as there are too many" {
		t.Errorf("%d bytes, %s", c.bytes, c.problem())
	}
	for i := range uint64(2 * mostCommandLines) {
		c.sample(1)
		c.begin(1, i)
		c.sample(uint32(i) + 2)
	}
	if n := len(c.lives[1]) + len(c.lives); n > mostCommandLines+1 {
		t.Errorf("%d programs", n)
	}
}
