package capture

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"unspool/capture/output"
	"unspool/capture/perfdata"
)

// A Rotation has a recording go on in another file from time to time. Each file can be read without the
// others.
type Rotation struct {
	Place *output.Place // whose name the files have, with the date and time behind it
	Most  int           // how many are kept, the last ones
	Size  int64         // of a file's bytes, without what it begins with, after which the next begins; 0: any
	Every time.Duration // the same for the time; 0: any

	Asked <-chan struct{} // a value has the next one begin

	// Last makes the recording keep the last of it, by time, in memory, and write a file only when that is asked
	// for, and at the end.
	Last time.Duration

	kept  []string // paths of the last files
	asked atomic.Bool
}

// into writes a recording to the next of the files.
func (r *Rotation) into(o *perfdata.Options) {
	o.Path, o.Place, o.Dated = r.Place.Path(), r.Place, r.Most
}

// made notes the path of a file.
func (r *Rotation) made(path string) {
	r.kept = append(r.kept, path)
	r.kept = r.kept[max(0, len(r.kept)-r.Most):]
}

// last is the path of the last file.
func (r *Rotation) last() string { return r.kept[len(r.kept)-1] }

// Files names the files that are kept, "" if there is none.
func (r *Rotation) Files() string {
	switch n := len(r.kept); n {
	case 0:
		return ""
	case 1:
		return r.kept[0]
	default:
		return fmt.Sprintf("%d files, %s to %s", n, r.kept[0], filepath.Base(r.kept[n-1]))
	}
}

// segments writes a recording into the files of a rotation.
type segments struct {
	*perfdata.Writer
	rotation *Rotation
	options  perfdata.Options
	begins   func(Output) error // writes what has to be in each file before everything else

	before int64 // bytes in the files that are complete
	stated int64 // of the bytes in this file, those that say what was known of processes
	since  time.Time
}

// createSegments begins the first file.
func createSegments(r *Rotation, o perfdata.Options) (*segments, error) {
	s := &segments{rotation: r, options: o}
	return s, s.create()
}

// create begins the next file.
func (s *segments) create() (err error) {
	s.rotation.into(&s.options)
	if s.Writer, err = perfdata.Create(s.options); err != nil {
		return err
	}
	s.rotation.made(s.Path())
	s.since = time.Now()
	return nil
}

// Written is how many bytes were written to all files.
func (s *segments) Written() int64 { return s.before + s.Writer.Written() }

// due reports whether the next file is to begin.
func (s *segments) due() bool {
	r := s.rotation
	return r.asked.Swap(false) || r.Size > 0 && s.Writer.Written()-s.stated >= r.Size ||
		r.Every > 0 && time.Since(s.since) >= r.Every
}

// next completes the file and begins the next one, by a process that cannot read what is known of the machine
// any more.
func (s *segments) next() error {
	done := s.Writer
	if err := done.Close(); err != nil {
		return err
	}
	s.before += done.Written()
	s.options.Features = done.Features()
	if err := s.create(); err != nil {
		s.Writer, s.before = done, s.before-done.Written() // which is closed
		return err
	}
	return s.begins(s)
}

// awaitAsked notes when somebody asks for the next file.
func (r *recording) awaitAsked() {
	if r.Rotation == nil {
		return
	}
	go func() {
		for {
			select {
			case <-r.Rotation.Asked:
				r.Rotation.asked.Store(true)
				r.source.Wake()
			case <-r.ending:
				return
			}
		}
	}()
}

// rotate makes the recording go on in another file if it is time.
func (r *recording) rotate(ctx context.Context) error {
	switch w := r.writer.(type) {
	case *segments:
		if w.stated = int64(r.session.told); !w.due() {
			return nil
		}
		r.tellCommandLines()
		r.session.TellBuildIDs()
		w.KeepPerfMaps(r.session.generators.kept())
		r.tellSampled(false)
		r.session.Images().ForgetKept()
		if err := r.session.Restate(w.next); err != nil {
			return err
		}
		r.note(fmt.Sprintf("the recording goes on in %s", w.Path()))
	case *flight:
		if r.Rotation.asked.Swap(false) {
			r.tellCommandLines()
			r.session.TellBuildIDs()
			w.KeepPerfMaps(r.session.generators.kept())
			r.tellSampled(false)
			if err := w.dump(true); err != nil {
				r.warn(fmt.Sprintf("%v. The last of the recording is still in memory: the next SIGUSR2 tries again", err))
			} else {
				r.note(fmt.Sprintf("the last of the recording is in %s", w.rotation.last()))
			}
		}
		w.stated(r.session.told)
		// After a drain that took long, parts would be forgotten that are of the last before the end.
		if w.due() && !r.over(ctx) {
			r.tellCommandLines()
			return r.session.Restate(w.next)
		}
	}
	return nil
}

// tellCommandLines writes the command lines of the programs that were sampled in this file, or this part of it.
func (r *recording) tellCommandLines() {
	if c := r.session.commandLines; c != nil {
		r.source.Peek(r.expect)
		c.settleSeen()
	}
}

// Restate writes what is known of processes again, ahead of their next samples, to a sink that begins anew by
// a call of begin. The samples that wait to be joined are handed on before that.
func (s *Session) Restate(begin func() error) error {
	if s.joiner != nil {
		if err := s.joiner.flush(); err != nil {
			return err
		}
	}
	s.table.Restate()
	s.commandLines.restate()
	s.forgetParts()
	s.told = 0
	return begin()
}
