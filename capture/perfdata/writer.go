package perfdata

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"unspool/capture/output"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Options say what is written where.
type Options struct {
	// Path is the path of the recording. An existing file is kept under the name Path + ".old". A stream
	// (/dev/stdout, /dev/fd/N, /dev/null) gets the pipe format, and so does "-", which means Out, or standard
	// output if Out is nil. Place, unless nil, is the place that Path leads to; it belongs to the caller.
	Path  string
	Place *output.Place
	Out   io.Writer

	// Dated gives the recording a name of its own, Path with the date and time, and keeps the last Dated of the files
	// that have got such names from Place (see output.File.KeepDated); 0 for the name Path.
	Dated int

	// Whole gives a file its name only when all of it has been written, by Close. If that fails, no file is left.
	Whole bool

	// Stop, unless nil, is closed when the recording is to end: from then on the reader of a stream has
	// less than a second to take what is written.
	Stop <-chan struct{}

	// Events are the events as they were opened, with all their IDs. Where they ask for user
	// registers and stacks they are written as asking for callchains instead.
	Events []perfring.Attr

	CommandLine []string // of the recording tool, argv[0] included; may be empty
	Version     string   // of the recording tool; "unspool" when empty

	// Compress is the level of zstd compression, 1 to 22; 0 writes records as they are.
	Compress int

	// Features, unless nil, are written instead of those of this machine and this recording: a conversion
	// hands on those of its input. EventDesc, BuildIDs, SampleTime and Compressed are always the Writer's.
	Features map[Feature][]byte
}

// Writer writes one recording. It is not safe for concurrent use. After the first error nothing more is
// written, and the file can be read up to the last flush.
type Writer struct {
	name   string       // of the destination, for errors
	file   *output.File // nil when the caller owns the destination
	out    io.Writer
	pipe   bool
	keep   func() error // gives the file its name when it is whole; nil if it has one
	events []perfring.Attr
	header fileHeader
	static []feature // known from the start
	early  []feature // those of static without which a file that is cut short cannot be read; before the data
	places map[Feature]section
	table  []byte // feature table that stands behind the data now
	comp   *compressor

	buf     []byte // whole records, not written yet
	packed  []byte // reused by flush
	written int64
	ids     []FileBuildID // for the BUILD_ID feature

	perfMaps []PerfMap

	described []byte          // records that describe a pipe, for the next flush; never compressed
	known     map[string]bool // path and ID of each entry of ids
	listed    map[string]bool // their paths, once there are MostBuildIDs of them
	dirty     bool            // records were written since the last round

	late bool // events were added behind the first record: a file has all of them again, at its end

	timeAt      int // offset of a sample's time; 0 if there is none or the events differ
	first, last uint64

	err      error
	returned bool // err was returned to the caller
	closed   bool
}

// bufferSize is how many bytes of records are collected before they are written. At least two records fit.
const bufferSize = compressChunk

// Create begins a recording: header, attributes and everything else that has to be before the data are
// written at once.
func Create(o Options) (*Writer, error) {
	if len(o.Events) == 0 {
		return nil, errors.New("perf.data without an event")
	}
	if o.Version == "" {
		o.Version = "unspool"
	}
	w := &Writer{known: map[string]bool{}, places: map[Feature]section{},
		buf: make([]byte, 0, bufferSize+recordHeader)}
	for _, e := range o.Events {
		w.events = append(w.events, e.Unwound())
	}
	w.timeAt = timeOffset(w.events)
	if o.Compress != 0 {
		c, err := newCompressor(o.Compress)
		if err != nil {
			return nil, err
		}
		w.comp = c
	}
	w.static = features(o, w.events)
	if err := w.addEarly(o); err != nil {
		return nil, err
	}
	if err := w.open(o); err != nil {
		return nil, err
	}
	return w, nil
}

// addEarly collects the features without which perf does not read the records at all. They have to be in a
// file while it is being written; the others come last.
func (w *Writer) addEarly(o Options) error {
	add := func(f feature) { w.static = append(w.static, f); w.early = append(w.early, f) }
	if o.Features != nil {
		if given := o.Features[TracingData]; len(given) > 0 {
			w.early = append(w.early, feature{TracingData, given})
		}
	} else {
		data, err := tracingData(w.events)
		if err != nil {
			return err
		}
		if data != nil {
			add(feature{TracingData, data})
		}
	}
	if w.comp != nil {
		add(w.comp.feature())
	}
	slices.SortFunc(w.static, func(a, b feature) int { return int(a.num) - int(b.num) })
	return nil
}

// open opens the destination, chooses the layout and writes everything that comes before the records.
func (w *Writer) open(o Options) error {
	w.name = o.Path
	if o.Path == "-" {
		w.name = "standard output"
		if o.Out != nil {
			w.pipe, w.out = true, o.untilStopped(o.Out)
			return w.beginPipe()
		}
	}
	place := o.Place
	if place == nil {
		var err error
		if place, err = output.Find(o.Path); err != nil {
			return err
		}
		defer place.Close()
	}
	return w.create(place, &o)
}

// graceToRead is how long a stream's reader may take when the recording is to end.
const graceToRead = 800 * time.Millisecond

// untilStopped is a stream that is given up when its reader takes nothing any more, and the recording is to end.
func (o *Options) untilStopped(stream io.Writer) io.Writer {
	if o.Stop == nil {
		return stream
	}
	return output.Until(stream, o.Stop, graceToRead)
}

// create begins the recording in its place.
func (w *Writer) create(place *output.Place, o *Options) (err error) {
	if w.file, err = place.Create(); err != nil {
		return err
	}
	if w.pipe = place.Stream(); w.pipe {
		w.out = o.untilStopped(w.file)
		err = w.beginPipe()
	} else if err = w.beginFile(); err == nil {
		keep := w.file.KeepOld
		if o.Dated > 0 {
			keep = func() (err error) {
				w.name, err = w.file.KeepDated(o.Dated)
				return err
			}
		}
		if o.Whole {
			w.keep = keep
		} else {
			err = keep() // if the process is killed from now on, a recording is left
		}
	}
	if err != nil {
		w.file.Discard()
	}
	return err
}

// timeOffset returns the offset of the time in the samples of all events, 0 if these differ.
func timeOffset(events []perfring.Attr) int {
	at := 0
	for i, e := range events {
		t := e.PerfEventAttr.Sample_type
		off := recordHeader
		for _, bit := range []uint64{unix.PERF_SAMPLE_IDENTIFIER, unix.PERF_SAMPLE_IP, unix.PERF_SAMPLE_TID} {
			if t&bit != 0 {
				off += 8
			}
		}
		if t&unix.PERF_SAMPLE_TIME == 0 || i > 0 && off != at {
			return 0
		}
		at = off
	}
	return at
}

// Path is where the recording is: of one with the date in its name, when it has that.
func (w *Writer) Path() string { return w.name }

// Write adds one record, header included. It is copied.
func (w *Writer) Write(rec []byte) error {
	if w.err != nil || w.closed {
		return w.fail(fs.ErrClosed)
	}
	if len(rec) < recordHeader || len(rec) != int(le.Uint16(rec[6:])) {
		return fmt.Errorf("%s: record of %d bytes whose header has another size", w.name, len(rec))
	}
	if len(w.buf)+len(rec) > bufferSize {
		if err := w.flush(nil); err != nil {
			return err
		}
	}
	w.buf = append(w.buf, rec...)
	if at := w.timeAt; at > 0 && perfring.Record(rec).Type() == perfring.RecordSample && at+8 <= len(rec) {
		t := le.Uint64(rec[at:])
		if w.first == 0 || t < w.first {
			w.first = t
		}
		w.last = max(w.last, t)
	}
	return nil
}

// WriteSample adds a sample whose stack was walked.
func (w *Writer) WriteSample(s *Walked) error { return s.Records(w.Write) }

// WriteTrace adds an AUXTRACE record and the raw data with which payload calls fn, of the length that the
// record says. Neither is compressed. If payload fails early, zeros are written for the missing data, up to a
// limit, so that the records behind it can be found.
func (w *Writer) WriteTrace(rec []byte, payload func(fn func([]byte) error) error) error {
	if w.err != nil || w.closed {
		return w.fail(fs.ErrClosed)
	}
	if len(rec) < recordHeader+8 {
		return fmt.Errorf("%s: AUXTRACE record of %d bytes", w.name, len(rec))
	}
	missing := le.Uint64(rec[recordHeader:])
	if err := w.flush(nil); err != nil {
		return err
	}
	raw := func(b []byte) error {
		missing -= min(missing, uint64(len(b)))
		return w.store(b)
	}
	if err := w.store(rec); err != nil {
		return err
	}
	err := payload(raw)
	if missing > maxFeature {
		return err
	}
	for zeros := make([]byte, compressChunk); missing > 0 && w.err == nil; {
		if serr := w.store(zeros[:min(missing, compressChunk)]); serr != nil {
			return serr
		}
		missing -= min(missing, compressChunk)
	}
	return err
}

// Round ends a round: all records that are written from now on are later than those that were written before
// the previous Round. Everything is flushed, so that a reader has it, and the file too if the process is
// killed. A round without records is not written.
func (w *Writer) Round() error {
	if w.err != nil || w.closed {
		return w.fail(fs.ErrClosed)
	}
	if len(w.buf) == 0 && !w.dirty {
		return nil
	}
	if err := w.flush(appendHeader(nil, perfring.RecordFinishedRound, 0, recordHeader)); err != nil {
		return err
	}
	w.dirty = false
	return nil
}

// AddEvents adds events that were not known when the recording began, ahead of their first record.
func (w *Writer) AddEvents(events []perfring.Attr) error {
	if w.err != nil || w.closed {
		return w.fail(fs.ErrClosed)
	}
	w.late = true
	known := len(w.events)
	for _, e := range events {
		w.events = append(w.events, e.Unwound())
	}
	if timeOffset(w.events[known:]) != w.timeAt {
		w.timeAt = 0
	}
	if !w.pipe {
		return nil
	}
	if err := w.flush(nil); err != nil { // the records so far stand before them
		return err
	}
	for _, e := range w.events[known:] {
		w.described = appendHeaderAttrs(w.described, e, true)
		w.described = appendEventName(w.described, e)
	}
	return w.flush(nil)
}

// MostBuildIDs is of how many files a recording lists build IDs: those that are sampled first. The records of mappings
// have most of them, too.
const MostBuildIDs = 1 << 16

// BuildID notes the build ID of a file that samples lie in, or of the kernel ("[kernel.kallsyms]").
// Repetitions are dropped. The ID is copied. In a pipe it is written with the next flush. If a file that
// samples lie in has no build ID, or none that is known, id is empty: its path is not listed, as readers
// would take the build ID of another file at that path for that of both.
func (w *Writer) BuildID(path string, id []byte, kernel bool) {
	key := path + "\x00" + string(id)
	if len(id) > maxBuildID || len(path) > unix.PathMax || w.known[key] || w.closed {
		return
	}
	if len(w.known) >= MostBuildIDs {
		if !w.isListed(path) {
			return
		}
		key, id = path+"\x00", nil // it is listed with the ID of another file
	}
	w.known[key] = true
	if len(id) == 0 || w.isUnlisted(path) {
		return
	}
	b := FileBuildID{Path: path, ID: slices.Clone(id), Kernel: kernel}
	if w.pipe {
		w.described = appendBuildID(w.described, perfring.RecordBuildID, b)
		return
	}
	w.ids = append(w.ids, b)
}

// KeepPerfMaps makes the recording keep perf maps, in the place of those that were given before. In a pipe they are
// left out.
func (w *Writer) KeepPerfMaps(maps []PerfMap) {
	if w.pipe || w.closed {
		return
	}
	w.perfMaps = maps
}

// isListed reports whether a file at the path has a build ID. It is for when there is no room for more.
func (w *Writer) isListed(path string) bool {
	if w.listed == nil {
		w.listed = make(map[string]bool, len(w.ids))
		for i := range w.ids {
			w.listed[w.ids[i].Path] = true
		}
	}
	return w.listed[path]
}

// isUnlisted reports whether a file at the path has no build ID.
func (w *Writer) isUnlisted(path string) bool { return w.known[path+"\x00"] }

// Features returns those of the machine and of the recording, for Options.Features of the next recording.
func (w *Writer) Features() map[Feature][]byte {
	given := make(map[Feature][]byte)
	for _, f := range w.static {
		given[f.num] = f.data
	}
	return given
}

// Written returns how many bytes the destination has received so far.
func (w *Writer) Written() int64 { return w.written }

// Close writes the buffered records and the features, and closes the file. It does not return an error again
// that was returned before. Further calls do nothing.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	if w.err == nil {
		_ = w.flush(nil)
		w.returned = false
	}
	w.closed = true
	if !w.pipe {
		// Also after a failed flush: on a full disk, there is room for them again, as the flush was taken back.
		if err := w.finishFile(); err != nil && w.err == nil {
			w.err = err
		}
	}
	if w.keep != nil && w.err == nil {
		w.err = w.keep()
	}
	if w.keep != nil && w.err != nil {
		w.file.Discard()
	} else if err := w.closeFile(); err != nil && w.err == nil {
		w.err = err
	}
	if w.returned {
		return nil
	}
	w.returned = true
	return w.err
}

// Fail ends the recording for a reason that the caller tells: Close leaves no file of a Whole one.
func (w *Writer) Fail(reason error) {
	if w.err == nil {
		w.err, w.returned = reason, true
	}
}

func (w *Writer) closeFile() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// fail returns the error that ended the recording, or other when there was none.
func (w *Writer) fail(other error) error {
	if w.err == nil {
		return fmt.Errorf("%s: %w", w.name, other)
	}
	w.returned = true
	return w.err
}

// flush writes the buffered records and then tail, which is a whole record or empty.
func (w *Writer) flush(tail []byte) error {
	data := w.buf
	if w.comp != nil {
		w.packed = w.comp.append(w.packed[:0], data)
		data = w.packed
	}
	data = append(append(data, w.described...), tail...)
	if w.comp != nil {
		w.packed = data
	}
	w.buf, w.described = w.buf[:0], w.described[:0]
	if len(data) == 0 {
		return nil
	}
	return w.store(data)
}

// store writes data to the destination.
func (w *Writer) store(data []byte) (err error) {
	if w.pipe {
		err = w.send(data)
	} else {
		err = w.commit(data, w.table, w.header)
	}
	w.dirty = true
	if err != nil {
		w.err, w.returned = err, true
		w.buf = nil
	}
	return err
}
