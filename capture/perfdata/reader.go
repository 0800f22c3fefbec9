package perfdata

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// DamageError says from where on a recording, or a file of one, cannot be read. All records before have been
// delivered.
type DamageError struct {
	Path   string
	Offset int64 // in the file or pipe, of the record that can't be read; -1 if nothing of a file is
	Err    error
}

func (e *DamageError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: not read: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: damaged at offset %d: %v", e.Path, e.Offset, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// Reader reads one recording. It is not safe for concurrent use.
type Reader struct {
	path    string
	*input           // that is read from
	inputs  []*input // all of a directory, nil for a file or pipe
	pool    pool     // of all inputs
	until   uint64   // up to which time the input is read before it is another one's turn
	damage  []error  // of the inputs of a directory
	pipe    bool
	at      *io.SectionReader // the file that has the header, nil for a pipe
	stopped *atomic.Bool      // by Stop
	waits   bool              // the recording is read through a waiting
	err     error             // what Next returned last: io.EOF or damage

	events  []perfring.Attr
	formats []perfring.SampleFormat // of events
	own     perfring.SampleFormat   // of records that belong to no event, as perf made them
	uniform bool                    // all formats are the same
	byID    map[uint64]int          // event by ID
	names   map[uint64]string       // of events that are not known yet, by their first ID

	features   map[Feature]contents
	featureErr error         // why there are none although the header announces some
	ids        []FileBuildID // from HEADER_BUILD_ID records
	unknown    uint64
	inHand     *queued // the record from its queue that Ordered is delivering
}

// An input is a run of records: those of a file, of a pipe, or of one of the files of a directory.
type input struct {
	name   string
	file   *os.File // nil when the caller of Open owns it
	data   scanner
	size   int64         // of the file, 0 for a pipe
	begin  int64         // offset of the data
	zstd   *decompressor // nil before the first compressed record
	latest uint64        // time in the input so far
	ended  bool          // nothing more is read from it
}

// contents are the contents of a feature: in the file, or in memory if they came through a pipe.
type contents struct {
	at   io.ReaderAt
	in   section
	data []byte
}

// Open opens a recording: a file as perf record -o FILE writes it, a directory as perf record --threads and
// --kcore do, or the output of perf record -o -, from a file or, with the path "-", from standard input. If it
// is not such a recording, the error says what it is.
func Open(path string) (*Reader, error) {
	file, name := os.Stdin, "standard input"
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		name = path
	}
	if st, err := file.Stat(); path != "-" && err == nil && st.IsDir() {
		defer file.Close()
		return openDirectory(file, name)
	}
	r, err := OpenStream(file, name)
	if path == "-" {
		return r, err
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	r.file = file
	return r, nil
}

// OpenStream reads a recording from an open file or pipe, which stays the caller's. Its name is for errors.
func OpenStream(file *os.File, name string) (*Reader, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var at io.ReaderAt
	var size int64
	in, stopped := io.Reader(file), new(atomic.Bool)
	if st.Mode().IsRegular() {
		at, size = file, st.Size()
	} else {
		in = &waiting{file: file, stopped: stopped}
	}
	r, err := newReader(name, in, at, size)
	if err == nil {
		r.stopped, r.waits = stopped, at == nil
	}
	return r, err
}

// newReader reads the header from in. at is the same recording for reads at any offset, and size its
// length; at is nil for a pipe.
func newReader(name string, in io.Reader, at io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{path: name, input: &input{name: name, size: size}, byID: map[uint64]int{},
		names: map[uint64]string{}, features: map[Feature]contents{}, stopped: new(atomic.Bool)}
	if at != nil {
		r.at = io.NewSectionReader(at, 0, size)
	}
	bad := func(format string, args ...any) (*Reader, error) {
		return nil, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...))
	}
	start := make([]byte, pipeSize, headerSize)
	n, err := io.ReadFull(in, start)
	switch {
	case n == 0 && err == io.EOF:
		return bad("empty")
	case err == io.ErrUnexpectedEOF:
		return bad("not a perf.data file")
	case err != nil:
		return bad("not a perf.data file: %w", err)
	}
	switch le.Uint64(start) {
	case magic:
	case magicSwapped:
		return bad("recorded on a big-endian machine, which is not supported")
	case magic1:
		return bad("recorded by a perf older than Linux 3.2, which is not supported")
	default:
		return bad("not a perf.data file")
	}
	switch n := le.Uint64(start[8:]); n {
	case pipeSize:
		r.pipe = true
		if at != nil {
			in = from(at, pipeSize)
		}
		r.data, r.begin = newScanner(&r.pool, in, pipeSize, -1), pipeSize
		return r, nil
	case headerSize, headerSizeOld:
		if at == nil {
			return bad("a perf.data file cannot be read through a pipe: name the file, or record with -o -")
		}
		start = start[:n]
	default:
		return bad("not a perf.data file: header of %d bytes", n)
	}
	if _, err := at.ReadAt(start, 0); err != nil {
		return bad("header: %w", noEOF(err))
	}

	if err := r.readFileHeader(start[:headerSize], at, size); err != nil {
		return bad("%w", err)
	}
	return r, nil
}

// Close closes the file. No record is valid any more, those that were kept neither.
func (r *Reader) Close() error {
	r.err = fmt.Errorf("%s: %w", r.path, os.ErrClosed)
	err := r.input.close()
	for _, in := range r.inputs {
		err = errors.Join(err, in.close())
	}
	r.pool.release()
	return err
}

// end gives up what is read of the input: there are no more records. The features are still in the file.
func (in *input) end() {
	in.ended = true
	in.data.close()
	if in.zstd != nil {
		in.zstd.close()
	}
}

func (in *input) close() (err error) {
	in.end()
	if in.file != nil {
		err, in.file = in.file.Close(), nil
	}
	return err
}

// errEndsEarly is about a recording that was cut.
var errEndsEarly = errors.New("the recording ends too early")

// noEOF turns the end of the file into an error where there should have been more.
func noEOF(err error) error {
	if err == io.EOF {
		return errEndsEarly
	}
	return err
}

// Events returns the events of the recording. In a pipe they arrive before the first record
// that Next returns; more may follow.
func (r *Reader) Events() []perfring.Attr { return r.events }

// Event returns the index in Events of the event with this ID, or -1 if there is none. A recording with one
// event may leave IDs out.
func (r *Reader) Event(id uint64) int {
	if i, ok := r.byID[id]; ok {
		return i
	}
	if len(r.events) == 1 {
		return 0
	}
	return -1
}

// Format returns the layout of a record: that of the event whose ID is in it. It is nil if that event is
// not known.
func (r *Reader) Format(rec perfring.Record) *perfring.SampleFormat {
	if len(r.formats) == 0 {
		return nil
	}
	first := &r.formats[0]
	if r.uniform {
		return first
	}
	id, ok := first.ID(rec)
	if !ok || id == 0 { // perf's own records, and those that perf synthesized, have none
		return &r.own
	}
	if i, ok := r.byID[id]; ok {
		return &r.formats[i]
	}
	return nil
}

// addEvent makes an event known.
func (r *Reader) addEvent(a perfring.Attr) {
	f := perfring.NewFormat(&a.PerfEventAttr)
	for _, id := range a.IDs {
		r.byID[id] = len(r.events)
	}
	if a.Name == "" && len(a.IDs) > 0 {
		a.Name = r.names[a.IDs[0]]
	}
	if a.Name == "" {
		a.Name = nameOf(&a.PerfEventAttr)
	}
	r.uniform = len(r.events) == 0 || r.uniform && f == r.formats[0]
	r.events = append(r.events, a)
	r.formats = append(r.formats, f)
	if len(r.formats) == 1 {
		r.own = f
	} else if f.AsksBuildIDs() {
		r.own = r.own.AllowBuildIDs()
	}
}

// Pipe reports whether the recording has the layout of a pipe.
func (r *Reader) Pipe() bool { return r.pipe }

// Position returns how many bytes of the data have been read, and how many there are: -1 in a pipe.
func (r *Reader) Position() (read, total int64) {
	if r.inputs == nil {
		return r.input.position()
	}
	for _, in := range r.inputs {
		n, all := in.position()
		if all < 0 {
			all = in.size - in.begin
		}
		read, total = read+n, total+all
	}
	return read, total
}

func (in *input) position() (read, total int64) {
	read = in.data.offset() - in.begin
	if in.data.left < 0 {
		return read, -1
	}
	return read, read + in.data.left
}

// ErrStopped is Next's error after Stop.
var ErrStopped = errors.New("reading was stopped")

// Stop makes Next return ErrStopped. It may be called while another goroutine reads. The program that writes
// into a pipe has usually received the same signal and is about to end: the rest of its output is still read,
// unless it is slow.
func (r *Reader) Stop() { r.stopped.Store(true) }

// A waiting reads from a pipe, which may have nothing to read for a while.
type waiting struct {
	file    *os.File
	stopped *atomic.Bool
	began   time.Time // when it was seen to be stopped
}

func (s *waiting) Read(p []byte) (int, error) {
	const (
		nap    = 200 * time.Millisecond
		silent = 2 * time.Second // how long a stopped stream may take for its next piece
		all    = 10 * time.Second
	)
	for waited := time.Duration(0); ; waited += nap {
		fds := []unix.PollFd{{Fd: int32(s.file.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(nap.Milliseconds()))
		switch {
		case err != nil && err != unix.EINTR:
			return 0, err
		case s.stopped.Load() && s.began.IsZero():
			s.began = time.Now()
			waited = 0
		case s.stopped.Load() && (waited > silent || time.Since(s.began) > all):
			return 0, ErrStopped
		}
		if n > 0 {
			return s.file.Read(p)
		}
	}
}

// Payload calls fn with the raw data behind the AUXTRACE record that was returned last, piece by piece; the
// record is not valid any more. If Payload is not called, the data is skipped.
func (r *Reader) Payload(fn func([]byte) error) error {
	for r.data.pending > 0 {
		at := r.data.offset()
		b, err := r.data.payload()
		if err != nil {
			r.err = &DamageError{Path: r.name, Offset: at, Err: err}
			return r.err
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}

// Next returns the next record in the order of the recording, decompressed. It is valid until the next call.
// Records that describe a pipe (its attributes, features, tracing data and build IDs) are not returned, but
// read. At the end the error is io.EOF, at damage a *[DamageError]. Damage in files of a directory is returned
// behind the records of the others; that of several files is joined, and [errors.As] finds the first.
func (r *Reader) Next() (perfring.Record, error) {
	if r.err == nil && r.stopped.Load() && !r.waits {
		r.err = ErrStopped
	}
	for r.err == nil {
		rec, at, err := r.next()
		switch {
		case err == nil:
			return rec, nil
		case errors.Is(err, ErrStopped):
			err = ErrStopped
		case err != io.EOF:
			err = &DamageError{Path: r.name, Offset: at, Err: err}
		}
		if r.inputs == nil || err == ErrStopped {
			r.err = err
		} else {
			r.err = r.nextInput(err)
		}
	}
	return nil, r.err
}

// next does the work of Next; at is the record's offset, for the error.
func (r *Reader) next() (rec perfring.Record, at int64, err error) {
	for {
		if r.zstd != nil {
			rec, err := r.zstd.record()
			r.zstd.inUse = rec != nil
			if rec != nil || err != nil {
				return rec, r.zstd.at, err
			}
		}
		at = r.data.offset()
		b, err := r.data.record()
		if err != nil {
			if err == io.EOF && r.zstd != nil && len(r.zstd.rest) > 0 {
				at, err = r.zstd.at, errors.New("compressed data ends inside a record")
			}
			return nil, at, err
		}
		rec = perfring.Record(b)
		used := true
		switch t := rec.Type(); {
		case t == perfring.RecordCompressed:
			err = r.decompress(rec.Body(), at)
		case t == perfring.RecordCompressed2:
			var body []byte
			if body, err = compressed2(rec.Body()); err == nil {
				err = r.decompress(body, at)
			}
		case t == perfring.RecordAuxtrace:
			// Raw trace data follows the record, which says how long it is.
			if len(rec) < recordHeader+8 {
				err = fmt.Errorf("%s record of %d bytes", t, len(rec))
			} else if n := le.Uint64(rec.Body()); r.size > 0 && n > uint64(r.size-r.data.offset()) {
				err = fmt.Errorf("%s record with %d bytes of data, in a file of %d", t, n, r.size)
			} else {
				r.data.pending = n
			}
			used = false
		case r.pipe:
			used, err = r.describe(rec)
		default:
			used = false
		}
		if err != nil || !used {
			return rec, at, err
		}
	}
}

// decompress begins with the payload of a compressed record.
func (r *Reader) decompress(payload []byte, at int64) (err error) {
	if r.zstd == nil {
		level := uint32(0)
		if b := r.Feature(Compressed); len(b) >= 12 {
			level = le.Uint32(b[8:])
		}
		if r.zstd, err = newDecompressor(level, len(r.inputs)); err != nil {
			return err
		}
	}
	r.zstd.payload, r.zstd.at = payload, at
	return nil
}

// compressed2 returns the payload of a COMPRESSED2 record, which is padded.
func compressed2(body []byte) ([]byte, error) {
	if len(body) < 8 || le.Uint64(body) > uint64(len(body)-8) {
		return nil, errors.New("COMPRESSED2 record: more data than the record holds")
	}
	return body[8:][:le.Uint64(body)], nil
}

// nameOf returns a name for an event that the recording does not name: a file that was not
// finished.
func nameOf(a *unix.PerfEventAttr) string {
	names := map[uint32][]string{
		unix.PERF_TYPE_HARDWARE: {"cycles", "instructions", "cache-references", "cache-misses", "branches",
			"branch-misses", "bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"},
		unix.PERF_TYPE_SOFTWARE: {"cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations",
			"minor-faults", "major-faults", "alignment-faults", "emulation-faults", "dummy", "bpf-output",
			"cgroup-switches"},
	}[a.Type]
	if a.Config < uint64(len(names)) {
		return names[a.Config]
	}
	if a.Type == unix.PERF_TYPE_BREAKPOINT && a.Bp_type < 8 {
		access := []string{"", "r", "w", "rw", "x", "rx", "wx", "rwx"}[a.Bp_type]
		return fmt.Sprintf("mem:%#x/%d:%s", a.Ext1, a.Ext2, access)
	}
	return fmt.Sprintf("type %d config %#x", a.Type, a.Config)
}
