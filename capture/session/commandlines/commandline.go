package commandlines

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/perfring"
	"unspool/vmas"
	"unspool/vmas/credit"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// Lines reads the command lines of programs, and writes those of sampled ones into the recording. A program is
// read when it is executed, as it may end soon, if it has not been when it is sampled first, and when the recording
// ends, as a process may have given itself another title (setproctitle). The last that was read counts.
//
// What is read is of the program that the process executes at that time, which may not be the one of the records at
// hand. So it counts only when all records up to the end of the read are taken, and if none of them says that the
// process has begun after the beginning of the read.
type Lines struct {
	texts process.Texts
	room  func() bool // of the rings; nil if that is not known
	write func(c *perfdata.CommandLine)
	now   func() uint64

	programs map[uint32]*program        // by PID; those that were executed or sampled
	reads    map[uint32]commandLineRead // by PID; those that do not count yet
	execs    map[uint32]uint64          // by PID, the time of the last exec whose record is not taken
	exits    map[uint32]bool            // by PID, those of the executed ones that have ended, as far as is known
	fresh    []*program                 // that were sampled for the first time since the last settle
	ended    []uint32                   // processes that have ended since then
	sampled  []wantedRead
	executed []wantedRead
	budget   credit.Credit // see readPrice
	bytes    int           // of all texts
	buf      []byte

	kept, unread, leftOut uint64
}

// A program is what a process executes.
type program struct {
	pid, tid uint32 // tid is a thread that was sampled
	began    uint64 // when it was executed or forked; 0 if that was before the recording
	first    uint64 // its first sample in this file; 0 for none
	text     string
	told     string // what the file has
	read     bool
	refused  bool // it was not read, as too many others were
	ended    bool
}

// A commandLineRead is what was read of a process, without secrets.
type commandLineRead struct {
	begin, end uint64
	text       string
	refused    bool
}

// A wantedRead is a process that is to be read.
type wantedRead struct {
	pid, tid uint32
	time     uint64 // of the exec
	tries    int    // so far, in which there was no text
}

const (
	// mostTries is how often a process without a command line is read: it has none in the midst of an exec, and
	// kernel threads never have one.
	mostTries = 3
	// mostWanted bounds how many processes wait to be read.
	mostWanted = 4096
	// mostTexts bounds the bytes of all texts.
	mostTexts = 16 << 20
	// readSlice is how long command lines are read at a time: the rings fill meanwhile.
	readSlice = 5 * time.Millisecond
	// lastSlice is the same when the recording ends.
	lastSlice = 100 * time.Millisecond
)

// New returns none so far. They are read from texts as long as the rings have room, and written by write.
func New(texts process.Texts, room func() bool, write func(c *perfdata.CommandLine)) *Lines {
	return &Lines{
		texts: texts, room: room, write: write, now: perfring.Now,
		programs: make(map[uint32]*program), reads: make(map[uint32]commandLineRead),
		execs: make(map[uint32]uint64), exits: make(map[uint32]bool),
		budget: newReadBudget(), buf: make([]byte, perfdata.MostCommandLine),
	}
}

// Expect queues a program to be read that a record says is executed, before the record is taken.
func (c *Lines) Expect(rec perfring.Record, f *perfring.SampleFormat) {
	switch {
	case c == nil:
	case rec.Type() == perfring.RecordComm && rec.Misc()&unix.PERF_RECORD_MISC_COMM_EXEC != 0:
		var d perfring.Comm
		if perfring.DecodeComm(rec, &d) == nil {
			at, _ := f.Time(rec)
			c.willExecute(d.PID, at)
		}
	case rec.Type() == perfring.RecordExit && len(c.executed) > 0 && len(c.exits) < mostWanted:
		var d perfring.Task
		if perfring.DecodeTask(rec, &d) == nil && d.PID == d.TID {
			c.exits[d.PID] = true // there is nothing to read any more
		}
	}
}

// willExecute notes that a process has executed another program, and has it be read if there is room.
func (c *Lines) willExecute(pid uint32, at uint64) {
	if len(c.execs) < mostWanted {
		c.execs[pid] = at
	}
	delete(c.exits, pid)
	w := wantedRead{pid: pid, tid: pid, time: at}
	if len(c.executed) >= mostWanted {
		c.refuse(&w)
		return
	}
	c.executed = append(c.executed, w)
}

// refuse notes that a program that was executed is not read.
func (c *Lines) refuse(w *wantedRead) {
	if len(c.reads) < mostWanted {
		c.reads[w.pid] = commandLineRead{begin: w.time, end: w.time, refused: true}
	}
}

// Follow takes a record that is no sample.
func (c *Lines) Follow(change *replay.Change, rec perfring.Record, f *perfring.SampleFormat) {
	if c == nil {
		return
	}
	at, _ := f.Time(rec)
	switch {
	case change.Kind == replay.LostRecords:
		clear(c.execs)
	case change.Kind == replay.Comm && change.Exec:
		c.begin(change.PID, at)
	case change.Kind == replay.Fork && change.NewProcess() && c.programs[change.PID] != nil:
		c.begin(change.PID, at)
	case change.Kind == replay.Exit && change.PID == change.TID:
		if p := c.programs[change.PID]; p != nil && !p.ended {
			p.ended = true
			c.ended = append(c.ended, change.PID)
		}
	}
}

// begin notes that a process executes another program, or is another one.
func (c *Lines) begin(pid uint32, at uint64) {
	if before := c.programs[pid]; before != nil {
		c.forget(before)
	}
	c.add(&program{pid: pid, began: at})
	if c.execs[pid] <= at {
		delete(c.execs, pid)
	}
}

// add makes a program known if there is room.
func (c *Lines) add(p *program) {
	if len(c.programs) < vmas.MaxSpaces {
		c.programs[p.pid] = p
	}
}

// forget forgets a program.
func (c *Lines) forget(p *program) {
	c.bytes -= len(p.text)
	delete(c.programs, p.pid)
}

// Sampled takes a sample.
func (c *Lines) Sampled(sm *perfring.Sample) {
	if c == nil || int32(sm.PID) <= 0 {
		return
	}
	p := c.programs[sm.PID]
	if p == nil {
		p = &program{pid: sm.PID}
		c.add(p)
	}
	if p.first == 0 {
		p.first, p.tid = max(sm.Time, 1), sm.TID
		c.fresh = append(c.fresh, p)
	}
}

// Read reads programs that wait for it, for a while.
func (c *Lines) Read() {
	if c == nil || len(c.sampled)+len(c.executed) == 0 {
		return
	}
	began := time.Now()
	c.budget.Left(began)
	c.sampled = c.readThese(c.sampled, began, 0)
	c.executed = c.readThese(c.executed, began, mostReadTime/2)
	if c.budget.Has() <= mostReadTime/2 {
		for i := range c.executed {
			c.refuse(&c.executed[i])
		}
		c.executed = c.executed[:0]
	}
	if len(c.executed) == 0 {
		clear(c.exits)
	}
}

// readThese reads processes as long as the budget has more than is to be left, and returns those that still wait.
func (c *Lines) readThese(all []wantedRead, began time.Time, left time.Duration) []wantedRead {
	again := 0
	for i := range all {
		if c.budget.Has() <= left || time.Since(began) >= readSlice || c.room != nil && !c.room() {
			return append(all[:again], all[i:]...)
		}
		w := all[i]
		if w.time != 0 && c.exits[w.pid] {
			continue
		}
		c.budget.Spend(readPrice)
		if c.readOne(w.pid, w.tid, w.tries+1 >= mostTries) {
			continue
		}
		w.tries++
		all[again] = w
		again++
	}
	return all[:again]
}

// readOne reads a process. It returns false if there is no text and it should be read again; last means that it is not.
func (c *Lines) readOne(pid, tid uint32, last bool) bool {
	r := commandLineRead{begin: c.now()}
	text, err := c.texts.Text(pid, tid, process.Cmdline, len(c.buf))
	if err != nil {
		return true // it has ended, or does not answer
	}
	n, _ := text.Read(c.buf)
	text.Close()
	r.end = c.now()
	if n == 0 && !last {
		return false
	}
	r.text = recordedCommandLine(c.buf[:max(n, 0)], n == len(c.buf))
	if before, waits := c.reads[pid]; r.text != "" || !waits || before.refused {
		c.reads[pid] = r
	}
	return true
}

// recordedCommandLine is what is recorded of a command line that was read. If it was cut, the last word is left out: of
// a secret, the end may be needed to recognize it.
func recordedCommandLine(raw []byte, cut bool) string {
	if cut {
		raw = raw[:bytes.LastIndexAny(raw, spaces+"\x00")+1]
	}
	s := maskSecrets(raw)
	const more = " …"
	if most := perfdata.MostCommandLine - len(more); len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, cut = s[:most], true
	}
	if cut {
		s = strings.TrimLeft(strings.TrimRight(s, " ")+more, " ")
	}
	return s
}

// Settle takes what counts now that all records up to a time were taken, and writes it for programs that were sampled.
func (c *Lines) Settle(time uint64) {
	if c == nil {
		return
	}
	for pid, r := range c.reads {
		if r.end <= time {
			delete(c.reads, pid)
			c.take(pid, &r)
		}
	}
	for _, p := range c.fresh {
		switch {
		case p.read:
			c.tell(p)
		case c.programs[p.pid] == p && len(c.sampled) < mostWanted:
			c.sampled = append(c.sampled, wantedRead{pid: p.pid, tid: p.tid})
		default:
			p.refused = true
		}
	}
	c.fresh = c.fresh[:0]
	ended := c.ended[:0]
	for _, pid := range c.ended {
		p := c.programs[pid]
		if p == nil || !p.ended {
			continue
		}
		if _, waits := c.reads[pid]; waits {
			ended = append(ended, pid)
			continue
		}
		c.count(p)
		c.forget(p)
	}
	c.ended = ended
}

// SettleSeen is settle for all that was read, as this file is about to be complete. All records that are in the rings
// have been looked at: so no program counts that was executed before it was read.
func (c *Lines) SettleSeen() {
	if c == nil || len(c.execs) >= mostWanted {
		return
	}
	for pid, r := range c.reads {
		if at, executed := c.execs[pid]; !executed || at > r.end {
			delete(c.reads, pid)
			c.take(pid, &r)
		}
	}
}

// take takes what was read of a process, if it is of the program that is known.
func (c *Lines) take(pid uint32, r *commandLineRead) {
	p := c.programs[pid]
	switch {
	case p == nil || r.begin < p.began:
		return
	case r.refused, c.bytes+len(r.text)-len(p.text) > mostTexts:
		p.refused = true
		return
	}
	p.read = true
	if r.text == "" { // a kernel thread, or it is about to end
		return
	}
	c.bytes += len(r.text) - len(p.text)
	p.text = r.text
	if p.first != 0 {
		c.tell(p)
	}
}

// tell writes what a program was started as, unless the file has it.
func (c *Lines) tell(p *program) {
	if p.text == p.told {
		return
	}
	if p.told == "" {
		c.kept++
	}
	p.told = p.text
	c.write(&perfdata.CommandLine{PID: p.pid, Time: p.first, Text: p.text})
}

// count counts a program that is over and was not read.
func (c *Lines) count(p *program) {
	switch {
	case p.first == 0 || p.read:
	case p.refused:
		c.leftOut++
	default:
		c.unread++
	}
}

// Restate writes all again for the programs that are sampled from now on.
func (c *Lines) Restate() {
	if c == nil {
		return
	}
	c.fresh = c.fresh[:0]
	for _, p := range c.programs {
		if p.told != "" {
			c.kept-- // it may be kept again
		}
		p.first, p.told = 0, ""
	}
}

// Reread reads the programs that were sampled once more, as they may call themselves otherwise now.
func (c *Lines) Reread() {
	if c == nil {
		return
	}
	began := time.Now()
	for _, p := range c.programs {
		if time.Since(began) >= lastSlice {
			return
		}
		if p.first != 0 && !p.ended {
			c.readOne(p.pid, p.tid, false)
		}
	}
}

// Finish writes what is left, when all records were taken.
func (c *Lines) Finish() {
	if c == nil {
		return
	}
	c.Settle(^uint64(0))
	for _, p := range c.programs {
		c.count(p)
	}
}

// Counted is what became of the command lines, when all was written.
func (c *Lines) Counted() counts.CommandLines {
	return counts.CommandLines{Kept: c.kept, Unread: c.unread, LeftOut: c.leftOut}
}

// Sweep forgets processes that are not known any more.
func (c *Lines) Sweep(known func(pid uint32) bool) {
	if c == nil {
		return
	}
	for pid, p := range c.programs {
		if p.ended || known(pid) {
			continue
		}
		p.ended = true
		c.ended = append(c.ended, pid)
	}
}

const (
	// Each program takes readPrice from the budget, which grows like the time. It takes 10 to 40 µs of CPU time.
	readPrice = time.Second / counts.ProgramsPerSecond
	// mostReadTime is for as many as can be read at once. One half is for programs that were sampled.
	mostReadTime = 1000 * readPrice
)

func newReadBudget() credit.Credit { return credit.New(1, mostReadTime) }
