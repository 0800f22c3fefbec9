package syscap

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/capture/profile"
	"unspool/perfring"
	"unspool/vmas"
)

// Options say what is written.
type Options struct {
	NoNames bool // leave finding names to Sysprof
}

// Writer writes one capture. The first error of its output is returned by Finish.
type Writer struct {
	out     io.Writer
	reader  *perfdata.Reader
	options Options
	profile *profile.Profile // the part that is loaded

	frames            // that are not written yet
	began      bool   // the header is written
	start, end uint64 // time of the first and the last frame, ns
	err        error  // of out

	processes map[uint32]*process
	buildIDs  map[string][]byte // of files, where mmap records have none
	names     names
	addrs     []uint64 // memory for the addresses of one sample

	cut     uint64 // samples whose stack did not fit its frame
	refused uint64 // other frames that were too large
	unnamed uint64 // times that a process was told of for which there was no room
}

// process is what is known about a process.
type process struct {
	comm    string            // now
	samples map[string]uint64 // by name of the process; nil if there is none
	since   uint64            // the first sample
	again   bool              // another process has had the PID
}

// count counts a sample under a name of the process.
func (p *process) count(time uint64, name string) {
	if p.samples == nil {
		p.samples, p.since = make(map[string]uint64), time
	}
	p.samples[name]++
}

// name is the name with most samples, the last one if there are none: see [profile.Profile.Processes].
func (p *process) name() string {
	if p.samples == nil {
		return p.comm
	}
	return profile.MostSampled(p.samples)
}

// New makes a Writer for the recording that r reads. If w is an io.WriterAt, at whose offset 0 the capture
// begins, Finish writes the end of the capture into the header. Otherwise the header has the end that the
// recording says, if it does, or readers have to search for it.
func New(w io.Writer, r *perfdata.Reader, o Options) *Writer {
	return &Writer{out: w, reader: r, options: o, processes: make(map[uint32]*process), names: newNames()}
}

// Begin implements [profile.Observer].
func (w *Writer) Begin(p *profile.Profile) { w.profile = p }

// Record implements [profile.Observer].
func (w *Writer) Record(c *replay.Change, f *perfring.SampleFormat, time uint64) {
	if time != 0 {
		w.begin(time)
	}
	h := frameHeader{cpu: -1, pid: -1, time: time}
	if cpu, ok := f.CPU(c.Record); ok && time != 0 {
		h.cpu = cpuNumber(cpu)
	}
	switch c.Kind {
	case replay.Mapping:
		if c.Map.Prot&vmas.ProtExec != 0 {
			h.pid = int32(c.PID)
			w.mapping(h, &c.Map)
		}
	case replay.Comm:
		if c.PID == c.TID {
			w.process(c.PID).comm = string(c.Comm)
		}
	case replay.Fork:
		if c.NewProcess() {
			h.pid = int32(c.PPID)
			w.fork(h, c.PPID, c.PID)
		}
	case replay.Exit:
		if c.PID == c.TID {
			h.pid = int32(c.PID)
			w.exit(h, c.PID)
		}
	case replay.LostRecords:
		w.mark(h, "lost", lost(c.Lost, "record", "records")+" before this")
	case replay.LostSamples:
		w.mark(h, "lost", lost(c.Lost, "sample", "samples")+" before this")
	case replay.Throttled:
		w.mark(h, "throttled", "the kernel held the event back")
	}
}

// cpuNumber is the number of a CPU, -1 if it does not fit into the format.
func cpuNumber(cpu uint32) int16 {
	if cpu > math.MaxInt16 {
		return -1
	}
	return int16(cpu)
}

// mapping writes a MAP frame.
func (w *Writer) mapping(h frameHeader, m *vmas.Map) {
	if w.buildIDs == nil {
		w.buildIDs = w.reader.FileBuildIDs()
	}
	buildID := m.ID.BuildID.Bytes()
	if buildID == nil {
		buildID = w.buildIDs[string(m.Name)]
	}
	at := w.open(frameMap, h)
	w.mapped(m.Addr, m.Addr+m.Len, m.Offset, m.ID.Inode, string(m.Name), buildID)
	w.close(at)
}

// process returns what is known of a process.
func (w *Writer) process(pid uint32) *process {
	p := w.processes[pid]
	if p == nil {
		p = &process{comm: fmt.Sprintf(":%d", pid)}
		switch pid {
		case 0:
			p.comm = "swapper" // the idle task, which no record announces
		case math.MaxUint32:
			p.comm = profile.Exited
		}
		w.keep(pid, p)
	}
	return p
}

// keep keeps what is known of a process, if there is room: otherwise it has no PROCESS frame.
func (w *Writer) keep(pid uint32, p *process) {
	if _, known := w.processes[pid]; !known && len(w.processes) >= vmas.MaxSpaces {
		w.unnamed++
		return
	}
	w.processes[pid] = p
}

// show writes a PROCESS frame, the only one of a process, as readers show different ones: it is written when
// the process is over, or at the end.
func (w *Writer) show(h frameHeader, p *process) {
	at := w.open(frameProcess, h)
	if line := w.profile.CommandLines[uint32(h.pid)]; line != "" && p.samples != nil && !p.again {
		w.text(line)
	} else {
		w.text(p.name())
	}
	w.close(at)
}

func (w *Writer) fork(h frameHeader, parent, child uint32) {
	if before := w.processes[child]; before != nil && before.samples != nil {
		w.show(frameHeader{cpu: -1, pid: int32(child), time: before.since}, before)
	}
	w.keep(child, &process{comm: w.process(parent).comm, again: w.processes[child] != nil})
	at := w.open(frameFork, h)
	w.buf = le.AppendUint32(w.buf, child)
	w.close(at)
}

func (w *Writer) exit(h frameHeader, pid uint32) {
	if p := w.process(pid); p.samples == nil {
		w.show(h, p)
		delete(w.processes, pid) // if it was sampled it stays, as other threads of it may go on
	}
	w.close(w.open(frameExit, h))
}

// mark writes a MARK frame, which Sysprof draws on its time line.
func (w *Writer) mark(h frameHeader, name, message string) {
	at := w.open(frameMark, h)
	w.buf = le.AppendUint64(w.buf, 0) // duration
	w.field(markGroup, "unspool")
	w.field(markName, name)
	w.text(message)
	w.close(at)
}

// warn writes a LOG frame.
func (w *Writer) warn(message string) {
	at := w.open(frameLog, frameHeader{cpu: -1, pid: -1, time: w.end})
	w.logged(logWarning, "unspool", message)
	w.close(at)
}

// metadata writes a METADATA frame.
func (w *Writer) metadata(id, value string) {
	if value == "" {
		return
	}
	at := w.open(frameMetadata, frameHeader{cpu: -1, pid: -1, time: w.start})
	w.field(metadataID, id)
	w.text(value[:min(len(value), maxFrame/4)])
	w.close(at)
}

// Sample implements [profile.Observer].
func (w *Writer) Sample(s *perfring.Sample, frames []int32, thread int32) {
	w.begin(s.Time)
	h := frameHeader{cpu: cpuNumber(s.CPU), pid: int32(s.PID), time: s.Time}
	w.process(s.PID).count(s.Time, w.profile.Threads[thread].Program)
	w.chain(s, frames)
	at := w.open(frameSample, h)
	w.sampled(s.TID, w.addrs)
	w.close(at)
}

// open begins a frame at a time within the recording.
func (w *Writer) open(kind uint32, h frameHeader) (at int) {
	if w.began {
		h.time = min(max(h.time, w.start), math.MaxInt64)
		w.end = max(w.end, h.time)
	}
	return w.frames.open(kind, h)
}

// close ends a frame. The output gets whole frames, so that a capture that is cut short ends with one.
func (w *Writer) close(at int) {
	if !w.frames.close(at) {
		w.refused++
	}
	if w.began && len(w.buf) >= 1<<18 {
		w.flush()
	}
}

func (w *Writer) flush() {
	if w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// known is the time of the last sample if the recording says it, else 0.
func (w *Writer) known() uint64 {
	if b := w.reader.Feature(perfdata.SampleTime); len(b) == 16 { // of the first and the last
		return le.Uint64(b[8:])
	}
	return 0
}

// begin writes the header, and the frames that were kept back until the time of the first frame was known.
func (w *Writer) begin(time uint64) {
	if w.began {
		return
	}
	w.began = true
	w.start = min(time, math.MaxInt64)
	w.end = w.start
	kept := w.buf
	w.buf = nil
	w.header(w.reader.WallClock(w.start), w.start, w.known())
	w.metadata("hostname", w.reader.Text(perfdata.Hostname))
	w.metadata("uname", strings.TrimSpace(w.reader.Text(perfdata.OSRelease)+" "+w.reader.Text(perfdata.Arch)))
	w.metadata("command", strings.Join(w.reader.CommandLine(), " "))
	for _, e := range w.reader.Events() {
		w.metadata("event", e.Name)
	}
	for len(kept) > 0 {
		size := le.Uint16(kept)
		le.PutUint64(kept[frameTime:], w.start)
		w.buf = append(w.buf, kept[:size]...)
		kept = kept[size:]
	}
}

// Finish writes the parts that are known only when the profile is loaded, which Begin was called with:
// names, and notes about what is missing.
func (w *Writer) Finish() error {
	w.begin(0)
	for _, pid := range slices.Sorted(maps.Keys(w.processes)) {
		h := frameHeader{cpu: -1, pid: int32(pid), time: w.end}
		if p := w.processes[pid]; p.samples != nil {
			h.time = p.since
		}
		w.show(h, w.processes[pid])
	}
	say := func(n uint64, format string) {
		if n > 0 {
			w.profile.Problems = append(w.profile.Problems, fmt.Sprintf(format, n))
		}
	}
	say(w.names.moved, "%d frames have the address of their function, as the recording has too many different ones")
	say(w.names.nameless, "%d frames have no name, as the recording has too many different addresses")
	for _, problem := range w.profile.Problems {
		w.warn(problem)
	}
	if n := w.profile.Lost(); n > 0 {
		w.warn(lost(n, "sample or other record", "samples or other records"))
	}
	if w.cut > 0 {
		w.warn(fmt.Sprintf(
			"%d stacks are deeper than a capture can hold: their outermost frames are missing", w.cut))
	}
	if w.refused > 0 {
		w.warn(fmt.Sprintf(
			"%d mappings or processes have names that are longer than a capture can hold, and are left out",
			w.refused))
	}
	if w.unnamed > 0 {
		w.warn(fmt.Sprintf("more than %d processes: some have no names", vmas.MaxSpaces))
	}
	if len(w.names.at) > 0 {
		if err := w.symbols(); err != nil {
			return err
		}
	}
	w.flush()
	if at, ok := w.out.(io.WriterAt); ok && w.err == nil {
		_, w.err = at.WriteAt(le.AppendUint64(nil, w.end), headerEnd)
	}
	return w.err
}

// lost returns how many of something were lost.
func lost(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one + " was lost"
	}
	return fmt.Sprintf("%d %s were lost", n, many)
}
