package output

import (
	"errors"
	"io"
	"time"
)

// errStalled means that the reader of a stream did not read in time.
var errStalled = errors.New("its reader has stopped reading: what follows is left out")

// Until returns a writer to a stream whose reader may stop reading. Until stop is closed a write takes as
// long as the reader likes; then it has grace to take what is under way. After that every write fails.
//
// The bytes are copied, and written by a goroutine that stays when a write hangs.
func Until(w io.Writer, stop <-chan struct{}, grace time.Duration) io.Writer {
	return &stream{w: w, stop: stop, grace: grace, done: make(chan error, 1)}
}

type stream struct {
	w     io.Writer
	stop  <-chan struct{}
	grace time.Duration

	buf  []byte // the goroutine's while there is one
	done chan error
	err  error // of all further writes
}

func (s *stream) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.buf = append(s.buf[:0], p...)
	go s.write()
	var err error
	select {
	case err = <-s.done:
	case <-s.stop:
		late := time.NewTimer(s.grace)
		defer late.Stop()
		select {
		case err = <-s.done:
		case <-late.C:
			s.err = errStalled
			return 0, s.err
		}
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *stream) write() {
	_, err := s.w.Write(s.buf)
	s.done <- err
}
