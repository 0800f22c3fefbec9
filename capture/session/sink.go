package session

import (
	"unspool/capture/perfdata"
	"unspool/vmas"
)

// A Sink takes the records of an unwound recording, in order. It copies what it keeps.
type Sink interface {
	// Write takes a record, unchanged or made up by the session.
	Write(rec []byte) error
	// WriteSample takes a sample with its callchain. [perfdata.Walked.Records] gives it as bytes.
	WriteSample(w *perfdata.Walked) error
}

// A ProcessSink is a Sink that is told of processes that no record has announced by Describe, and not by
// records that the session makes up.
type ProcessSink interface {
	Sink
	// Describe tells of a process, its name and all its mappings: when it is first seen, and again when more
	// of it is known. The space is valid during the call.
	Describe(space *vmas.Space) error
	// Sampled is called for a sample when it is walked, which can be long before it is written: its process may
	// be gone by then. The space is valid during the call.
	Sampled(pid uint32, space *vmas.Space) error
	// Ended is called for a process that cannot be read any more: its EXIT is in the rings, and will be written
	// later.
	Ended(pid uint32)
	// Sweep is called every few seconds, with a function that reports whether a process is still known.
	Sweep(known func(pid uint32) bool)
}

// A Watcher is a sink that also needs address spaces and images.
type Watcher interface {
	Sink
	// Begin is called before the first record. The session's table is ahead of what it hands on while a sample
	// waits for its stack to be seen again.
	Begin(s *Session)
}

// Both returns a sink that hands everything to two.
func Both(first, second Sink) Sink { return &both{first, second} }

type both struct{ first, second Sink }

func (b *both) Write(rec []byte) error {
	if err := b.first.Write(rec); err != nil {
		return err
	}
	return b.second.Write(rec)
}

func (b *both) WriteSample(w *perfdata.Walked) error {
	if err := b.first.WriteSample(w); err != nil {
		return err
	}
	return b.second.WriteSample(w)
}
