package capture

import (
	"time"

	"unspool/capture/rights/rest"
	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
)

// confine leaves everything that needs rights to the opener, before anything is read that others have
// written. It first reads what this process itself needs from the system and cannot read any more after that.
func (r *recording) confine() error {
	if r.Opener == nil {
		r.readRest(rest.Direct{})
		return nil
	}
	if err := r.Opener.GrantEvents(r.source.FollowThrough(r.Opener)); err != nil {
		return err
	}
	if r.Grant != nil {
		if err := r.Grant(); err != nil {
			return err
		}
	}
	r.readRest(r.Opener)
	unfiltered := r.Opener.Seal()
	if r.Confine == nil {
		return nil
	}
	if err := prepare(); err != nil {
		return err
	}
	r.Confine(unfiltered)
	return nil
}

// readRest has stacks read when they are sampled.
func (r *recording) readRest(from RingReader) {
	r.out.ReadsRest = r.session.ReadRest(r.source, from)
}

// prepare reads what a process needs of the system, and opens what it may not open when it is confined.
func prepare() error {
	_, _ = time.Now().Zone() // reads /etc/localtime
	_, _ = vdso.Own()
	return fileid.Prepare()
}

// PrepareReading does the same for a process that will read recordings.
func PrepareReading() error {
	_, _ = vdso.Own32() // runs a program
	return prepare()
}
