package live

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"unspool/capture/perfdata"
)

// A flight is a flight recorder: it keeps the last of a recording in memory, and writes that to a file when
// it is asked to, and at the end. What it keeps is in parts, each of which says what is known of the processes
// that are sampled in it, so that the oldest part can be forgotten.
type flight struct {
	rotation *Rotation
	options  perfdata.Options
	begins   func(Destination) error // writes what has to be in each file before everything else

	most    int    // bytes to keep
	parts   []part // the oldest first, never empty
	bytes   int    // of their records
	ids     map[string]perfdata.FileBuildID
	maps    []perfdata.PerfMap
	written int64
}

// A part has the records of some time, whole ones in each chunk.
type part struct {
	began  time.Time
	bytes  int
	stated int // of bytes, those that say what was known of processes
	chunks [][]byte
}

const (
	// partsKept is how many parts cover the time that is kept.
	partsKept = 4
	// mostKept bounds the memory for records: beyond it, less than the time that was asked for is kept.
	mostKept  = 256 << 20
	chunkSize = 1 << 20
)

// newFlight reads what the files have to say of the machine: a confined process could not do so later.
func newFlight(r *Rotation, o perfdata.Options) (*flight, error) {
	o.Path, o.Out, o.Place = "-", io.Discard, nil
	w, err := perfdata.Create(o)
	if err != nil {
		return nil, err
	}
	o.Features, o.Out = w.Features(), nil
	f := &flight{rotation: r, options: o, most: mostKept, ids: make(map[string]perfdata.FileBuildID)}
	return f, f.next()
}

// Write keeps a record.
func (f *flight) Write(rec []byte) error {
	if len(rec) < recordHeader || recordSize(rec) != len(rec) {
		return fmt.Errorf("a record of %d bytes has another size in its header", len(rec))
	}
	p := &f.parts[len(f.parts)-1]
	last := len(p.chunks) - 1
	if last < 0 || len(p.chunks[last])+len(rec) > cap(p.chunks[last]) {
		p.chunks = append(p.chunks, make([]byte, 0, chunkSize))
		last++
	}
	p.chunks[last] = append(p.chunks[last], rec...)
	p.bytes += len(rec)
	f.bytes += len(rec)
	return nil
}

// WriteSample keeps a sample.
func (f *flight) WriteSample(w *perfdata.Walked) error { return w.Records(f.Write) }

// BuildID is for [Destination].
func (f *flight) BuildID(path string, id []byte, kernel bool) {
	if len(f.ids) >= perfdata.MostBuildIDs {
		clear(f.ids)
	}
	f.ids[path+"\x00"+string(id)] = perfdata.FileBuildID{Path: path, ID: append([]byte(nil), id...), Kernel: kernel}
}

// KeepPerfMaps is for [Destination].
func (f *flight) KeepPerfMaps(maps []perfdata.PerfMap) { f.maps = maps }

// Round is for [Destination].
func (f *flight) Round() error { return nil }

// Written is how many bytes were written to all files.
func (f *flight) Written() int64 { return f.written }

// Close writes what is left to the last file. If not all of it can be written, a part of it is better than nothing.
func (f *flight) Close() error { return f.dump(false) }

// due reports whether the next part is to begin.
func (f *flight) due() bool {
	p := &f.parts[len(f.parts)-1]
	return p.bytes-p.stated >= f.most/partsKept || time.Since(p.began) >= f.rotation.Last/partsKept
}

// begin keeps what each file begins with.
func (f *flight) begin(describe func(Destination) error) error {
	f.begins = describe
	return nil
}

// rotate writes what is kept if that is asked for, and begins the next part if it is time.
func (f *flight) rotate(r *recording, over func() bool) error {
	if f.rotation.asked.Swap(false) {
		r.completeFile()
		if err := f.dump(true); err != nil {
			r.warn(fmt.Sprintf("%v. The last of the recording is still in memory: the next SIGUSR2 tries again", err))
		} else {
			r.note(fmt.Sprintf("the last of the recording is in %s", f.rotation.last()))
		}
	}
	f.stated(r.session.Told())
	// After a drain that took long, parts would be forgotten that are of the last before the end.
	if f.due() && !over() {
		r.tellCommandLines()
		return r.session.Restate(f.next)
	}
	return nil
}

// stated notes how many bytes of the part say what was known of processes. They do not count as recorded, so that they
// do not have the next part begin at once.
func (f *flight) stated(bytes int) { f.parts[len(f.parts)-1].stated = bytes }

// recordHeader is sizeof(struct perf_event_header).
const recordHeader = 8

// recordSize is the size of the record that b begins with.
func recordSize(b []byte) int { return int(binary.NativeEndian.Uint16(b[6:])) }

// next begins the next part, and forgets those that are too old.
func (f *flight) next() error {
	now := time.Now()
	f.parts = append(f.parts, part{began: now})
	for len(f.parts) > 1 && (now.Sub(f.parts[1].began) >= f.rotation.Last || f.bytes > f.most) {
		f.bytes -= f.parts[0].bytes
		f.parts[0] = part{}
		f.parts = f.parts[1:]
	}
	return nil
}

// dump writes all that is kept to the next file. If that fails, and whole is set, no file is left: what
// is kept is still in memory.
func (f *flight) dump(whole bool) error {
	f.rotation.into(&f.options)
	f.options.Whole = whole
	w, err := perfdata.Create(f.options)
	if err != nil {
		return err
	}
	err = f.begins(w)
	for i := range f.parts {
		for _, c := range f.parts[i].chunks {
			for len(c) > 0 && err == nil {
				err = w.Write(c[:recordSize(c)])
				c = c[recordSize(c):]
			}
		}
	}
	for _, id := range f.ids {
		w.BuildID(id.Path, id.ID, id.Kernel)
	}
	w.KeepPerfMaps(f.maps)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err == nil || !whole {
		f.rotation.made(w.Path())
		f.written += w.Written()
	}
	return err
}
