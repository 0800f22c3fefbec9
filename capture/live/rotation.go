package live

import (
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

// files is a Destination that goes on in another file from time to time.
type files interface {
	Destination
	// begin takes what writes the things that have to be in each file before everything else.
	begin(describe func(Destination) error) error
	// rotate goes on in another file, or part of it, if it is time. over reports whether the recording ends.
	rotate(r *recording, over func() bool) error
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

// completeFile writes what a file has to have before another one begins.
func (r *recording) completeFile() {
	r.tellCommandLines()
	r.session.TellBuildIDs()
	r.writer.KeepPerfMaps(r.generators.Kept())
	r.tellSampled(false)
}

// tellCommandLines writes the command lines of the programs that were sampled in this file, or this part of it.
func (r *recording) tellCommandLines() {
	if c := r.session.CommandLines(); c != nil {
		r.source.Peek(r.expect)
		c.SettleSeen()
	}
}
