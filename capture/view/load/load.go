package load

import (
	"context"
	"errors"
	"fmt"
	"os"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/recorded"
	"unspool/capture/symbols"
)

// Options say which recording is read, and how.
type Options struct {
	Convert recorded.Options // the recording, and how raw stacks are unwound
	Symbols symbols.Options
	Profile profile.Options // Progress and Lookup are for those below

	// Named is called now and then with the share of the recording whose addresses have names, and Lookup with
	// the number of images in which source lines were looked up, and of all.
	Named  func(share float64)
	Lookup func(done, images int)
}

// Profile reads a recording into a profile. For a damaged recording, the profile has the samples before the
// damage, and its Problems and its Damage say where that is.
func Profile(ctx context.Context, o Options) (*profile.Profile, error) {
	u, uerr := Unwind(ctx, o.Convert)
	if u == nil {
		return nil, uerr
	}
	defer u.Close()
	r, err := perfdata.Open(u.Path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer context.AfterFunc(ctx, r.Stop)()
	o.Profile.Progress = func(uint64) {
		if read, total := r.Position(); total > 0 {
			o.Named(float64(read) / float64(total))
		}
	}
	o.Profile.Lookup = o.Lookup
	p, err := profile.Load(r, symbols.New(o.Symbols), o.Profile)
	if errors.Is(err, perfdata.ErrStopped) {
		err = errors.New("interrupted")
	}
	if p == nil {
		return nil, errors.Join(err, uerr)
	}
	if uerr != nil {
		p.Damage = errors.Join(uerr, p.Damage)
		p.Problems = append(p.Problems, fmt.Sprintf("what follows is lost: %v", uerr))
	}
	if st, err := os.Stat(o.Convert.Input); err == nil && st.Mode().IsRegular() {
		p.Changed = st.ModTime()
	}
	if err != nil {
		err = errors.Join(err, uerr)
	}
	return p, err
}
