package syscap

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	procfs "unspool/vmas/process"
)

// LiveOptions say what a Live writes, and where to.
type LiveOptions struct {
	FD       int                    // of a pipe, a socket or a file, opened for writing
	Format   *perfring.SampleFormat // of the records
	Texts    procfs.Texts           // the proc file system
	Kallsyms *os.File               // the kernel's symbols, to be put into the capture; nil for none
}

// A Live writes a capture while it is recorded, with the frames that sysprof-live-unwinder writes: the
// header, the kernel's symbols if they are given, the mounts, and for each process its name, its mounts and
// its mappings; then what happens, in the order of time. A process that nothing was written of is described
// ahead of its first sample. Names of functions are left to Sysprof.
//
// It is a live.StreamOutput. Its memory depends on how many processes there are, and on what waits for the
// reader, of which there is a bounded amount.
type Live struct {
	frames  // one at a time
	out     *outlet
	options LiveOptions

	start, end uint64 // time of the header and the last frame, ns
	processes  map[uint32]*liveProcess
	ended      map[uint32]bool // processes of which only the EXIT is still to be written, and what precedes it
	addrs      []uint64
	sample     perfring.Sample
	content    bytes.Buffer // of the text that was read last

	cut     uint64 // samples whose stack did not fit its frame
	refused uint64 // other frames that were too large
	told    uint64 // of out.dropped
}

// NewLive prepares the descriptor, and writes nothing. The descriptor stays the caller's.
func NewLive(o LiveOptions) (*Live, error) {
	out, err := newOutlet(o.FD)
	if err != nil {
		return nil, err
	}
	if o.Texts == nil {
		o.Texts = procfs.Direct("/proc")
	}
	return &Live{out: out, options: o, processes: make(map[uint32]*liveProcess),
		ended: make(map[uint32]bool)}, nil
}

// logDomainLive is the domain of the LOG frames: that of Sysprof's own sampler.
const logDomainLive = "Sampler"

// Begin writes the header and the files that come first.
func (l *Live) Begin() error {
	l.start = perfring.Now()
	l.end = l.start
	l.header(time.Now(), l.start, 0)
	if err := l.send(true); err != nil {
		return err
	}
	if file := l.options.Kallsyms; file != nil {
		l.file("/proc/kallsyms", readSoon(file))
	}
	own := uint32(os.Getpid())
	l.file("/proc/mounts", l.read(own, procfs.Mounts))
	return l.out.err
}

const (
	mostKallsyms = 64 << 20
	mostText     = 1 << 20
	// kallsymsSoon is how long the kernel's symbols are waited for: they may come from anything.
	kallsymsSoon = time.Second
)

// readSoon reads a file that may never end. It is left to the goroutine if it takes too long.
func readSoon(file *os.File) []byte {
	all := make(chan []byte, 1)
	go func() {
		defer file.Close()
		b, _ := io.ReadAll(io.LimitReader(file, mostKallsyms))
		all <- b
	}()
	select {
	case b := <-all:
		return b
	case <-time.After(kallsymsSoon):
		return nil
	}
}

// read reads a text of a process, nil where that is not possible. It is valid until the next one is read.
func (l *Live) read(pid uint32, name procfs.Text) []byte {
	text, err := l.options.Texts.Text(pid, pid, name, mostText)
	if err != nil {
		return nil
	}
	defer text.Close()
	l.content.Reset()
	if _, err := l.content.ReadFrom(io.LimitReader(text, mostText)); err != nil {
		return nil
	}
	return l.content.Bytes()
}

// maxLiveChunk is how much of a file a frame holds, so that it fits into a packet.
const maxLiveChunk = packet - fileSize

// file writes a file, if there is something in it.
func (l *Live) file(path string, b []byte) {
	for len(b) > 0 {
		n := min(len(b), maxLiveChunk)
		at := l.open(frameFile, frameHeader{cpu: -1, pid: -1, time: l.now()})
		l.chunk(path, b[:n], n == len(b))
		l.close(at)
		_ = l.send(true) // the error is that of all later frames, too
		b = b[n:]
	}
}

// now is the time of what is read and not sampled.
func (l *Live) now() uint64 { return max(l.start, perfring.Now()) }

// open begins a frame at a time within the capture.
func (l *Live) open(kind uint32, h frameHeader) (at int) {
	h.time = max(h.time, l.start)
	l.end = max(l.end, h.time)
	return l.frames.open(kind, h)
}

// finish ends a frame and writes it.
func (l *Live) finish(at int) error {
	if !l.close(at) {
		l.refused++
		return nil
	}
	return l.send(false)
}

// send writes the frame. must means that it is not left out however slow the reader is.
func (l *Live) send(must bool) error {
	defer func() { l.buf = l.buf[:0] }()
	return l.out.send(l.buf, must)
}

// log writes a LOG frame.
func (l *Live) log(time uint64, message string) error {
	at := l.open(frameLog, frameHeader{cpu: -1, pid: -1, time: time})
	l.logged(logCritical, logDomainLive, message)
	return l.finish(at)
}

// Write takes a record that is no sample of a user stack.
func (l *Live) Write(rec []byte) error {
	r := perfring.Record(rec)
	time, _ := l.options.Format.Time(r)
	switch r.Type() {
	case perfring.RecordSample:
		return l.plain(r)
	case perfring.RecordLost:
		var d perfring.Lost
		if perfring.DecodeLost(r, &d) == nil {
			return l.log(time, fmt.Sprintf("Lost %d samples", d.Lost))
		}
	case perfring.RecordLostSamples:
		var d perfring.LostSamples
		if perfring.DecodeLostSamples(r, &d) == nil {
			return l.log(time, fmt.Sprintf("Lost %d samples", d.Lost))
		}
	default:
		return l.task(r, time)
	}
	return l.out.err
}

// plain takes a sample of an event that copies no stacks.
func (l *Live) plain(r perfring.Record) error {
	if l.options.Format.Sample(r, &l.sample) != nil {
		return l.out.err
	}
	chain := l.addrs[:0]
	for i := range l.sample.Callchain.Len() {
		chain = append(chain, l.sample.Callchain.At(i))
	}
	l.addrs = chain
	return l.WriteSample(&perfdata.Walked{Record: r, Format: l.options.Format, Sample: &l.sample, Chain: chain})
}

// WriteSample takes a sample.
func (l *Live) WriteSample(w *perfdata.Walked) error {
	s := w.Sample
	if w.Space == nil { // the others were described when they were walked, and their PID may be another's by now
		if err := l.sampledProcess(s.PID, nil); err != nil {
			return err
		}
	}
	chain := w.Chain
	if len(chain) == 0 {
		l.addrs = append(l.addrs[:0], s.Context(), s.IP)
		chain = l.addrs
	}
	if len(chain) > maxAddrs {
		chain = chain[:maxAddrs]
		l.cut++
	}
	at := l.open(frameSample, frameHeader{cpu: cpuNumber(s.CPU), pid: int32(s.PID), time: s.Time})
	l.sampled(s.TID, chain)
	return l.finish(at)
}

// BuildID is not used: MAP frames have build IDs where they are known.
func (l *Live) BuildID(string, []byte, bool) {}

// KeepPerfMaps is not used: a capture has no place for them.
func (l *Live) KeepPerfMaps([]perfdata.PerfMap) {}

// Round writes what waits, and says what the reader was too slow for.
func (l *Live) Round() error {
	if err := l.out.pump(); err != nil {
		return err
	}
	return l.tell()
}

// tell writes what was left out since it was last told, once there is room.
func (l *Live) tell() error {
	n := l.out.dropped - l.told
	if n == 0 || l.out.waits() {
		return nil
	}
	l.told += n
	return l.log(l.now(), fmt.Sprintf("Lost %d samples or other frames: the capture was not read in time", n))
}

// Waits means that the reader has not taken all yet.
func (l *Live) Waits() bool { return l.out.stream && l.out.waits() }

// Written is how many bytes were written.
func (l *Live) Written() int64 { return l.out.written }

// Dropped is how many frames the reader did not take in time.
func (l *Live) Dropped() uint64 { return l.out.dropped }

// endGrace is how long the end waits for the reader.
const endGrace = 50 * time.Millisecond

// Close writes what is left, and the end into the header of a file. The reader may be gone: what was not read
// by then is lost.
func (l *Live) Close() error {
	_ = l.tell()
	if l.cut > 0 {
		_ = l.log(l.now(), fmt.Sprintf("%d stacks are deeper than a capture can hold: "+
			"their outermost frames are missing", l.cut))
	}
	if l.refused > 0 {
		_ = l.log(l.now(), fmt.Sprintf("%d mappings have names that are longer than a capture can hold", l.refused))
	}
	if err := l.out.finish(endGrace); err != nil {
		return err
	}
	if l.out.stream {
		return nil
	}
	return l.out.amend(le.AppendUint64(nil, l.end), headerEnd)
}
