package load

import (
	"context"
	"os"
	"path/filepath"

	"unspool/capture/perfdata"
	"unspool/capture/recorded"
)

// Unwound is a recording with callchains, made from one that may have raw stacks.
type Unwound struct {
	Path    string
	Outcome *recorded.Conversion // of unwinding; nil if there was nothing to unwind
	folder  string               // the temporary folder
}

// Close removes the temporary recording.
func (u *Unwound) Close() {
	if u.folder != "" {
		os.RemoveAll(u.folder)
	}
}

// Unwind makes sure that a recording is a file with callchains: one with raw stacks, one that comes through a
// pipe, and a directory, is converted in a temporary folder. If the input is damaged, it returns the part that
// was converted together with the error, as [recorded.Convert] does, or nil if there is nothing.
func Unwind(ctx context.Context, o recorded.Options) (*Unwound, error) {
	o.Output = ""
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Input != "-" {
		raw, err := hasRawStacks(o.Input)
		if err != nil {
			return nil, err
		}
		if !raw {
			return &Unwound{Path: o.Input}, nil
		}
	}
	folder, err := os.MkdirTemp("", "unspool-")
	if err != nil {
		return nil, err
	}
	u := &Unwound{Path: filepath.Join(folder, "perf.data"), folder: folder}
	o.Output = u.Path
	out, err := recorded.Convert(ctx, o)
	u.Outcome = &out
	if !out.Started || ctx.Err() != nil {
		u.Close()
		return nil, err
	}
	return u, err
}

// hasRawStacks reports whether a recording needs unwinding, or may need it: the events of a pipe are known
// only later. A directory is merged into a file by the way.
func hasRawStacks(path string) (bool, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return true, nil
	}
	r, err := perfdata.Open(path)
	if err != nil {
		return false, err
	}
	defer r.Close()
	if r.Pipe() {
		return true, nil
	}
	return recorded.HasStacks(r.Events()), nil
}
