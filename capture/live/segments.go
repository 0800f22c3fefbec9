package live

import (
	"fmt"
	"time"

	"unspool/capture/perfdata"
)

// segments writes a recording into the files of a rotation.
type segments struct {
	*perfdata.Writer
	rotation *Rotation
	options  perfdata.Options
	begins   func(Destination) error // writes what has to be in each file before everything else

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

// begin writes what each file begins with.
func (s *segments) begin(describe func(Destination) error) error {
	s.begins = describe
	return describe(s)
}

// rotate begins the next file if it is time.
func (s *segments) rotate(r *recording, _ func() bool) error {
	if s.stated = int64(r.session.Told()); !s.due() {
		return nil
	}
	r.completeFile()
	r.session.Images().ForgetKept()
	if err := r.session.Restate(s.next); err != nil {
		return err
	}
	r.note(fmt.Sprintf("the recording goes on in %s", s.Path()))
	return nil
}
