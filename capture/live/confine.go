package live

import (
	"unspool/capture/session"
)

// confine leaves everything that needs rights to the opener, before anything is read that others have
// written. It first reads what this process itself needs from the system and cannot read any more after that.
func (r *recording) confine() error {
	if r.Source != nil {
		r.readRest(r.Rest)
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
	unfiltered := r.Opener.Seal(r.Confine != nil)
	if r.Confine == nil {
		return nil
	}
	if err := session.Prepare(); err != nil {
		return err
	}
	r.Confine(unfiltered)
	return nil
}

// readRest has stacks read when they are sampled.
func (r *recording) readRest(from session.RingReader) {
	r.out.ReadsRest = r.session.ReadRest(r.source, from)
}
