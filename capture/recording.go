package capture

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/capture/profile"
	"unspool/capture/recorded"
	"unspool/capture/symbols"
	"unspool/capture/view/load"
	"unspool/perfring"
)

// Options are the settings of [Open]. The zero value finds files at their recorded paths and in perf's cache.
type Options struct {
	Symfs    string // directory below which files are looked for first
	Cache    string // perf's build-ID cache; "" for ~/.debug
	MaxStack int    // frames of a user stack at most; 0 for 2048
	Strict   bool   // user stacks follow CFI alone, and are not completed from other samples
}

// A Recording is a perf.data file whose samples have stacks. One goroutine uses it at a time.
type Recording struct {
	options  Options
	path     string
	unwound  *load.Unwound
	damage   error // of the file at path, behind what was unwound
	profile  *profile.Profile
	problems []string
}

// Open opens a recording of perf or unspool: a file, a directory, or "-" for what perf writes to a pipe. Raw
// copies of stacks are unwound first, into a temporary file, which Close removes. The context can end that early.
// A recording that is damaged is open up to the damage, which [Recording.Samples] returns.
func Open(ctx context.Context, path string, o Options) (*Recording, error) {
	u, err := load.Unwind(ctx, recorded.Options{
		Input: path, Symfs: o.Symfs, Cache: o.Cache, MaxStack: cmp.Or(o.MaxStack, 2048), Strict: o.Strict,
	})
	if u == nil {
		return nil, err
	}
	return &Recording{options: o, path: path, unwound: u, damage: err}, nil
}

// Close removes what [Open] has made.
func (r *Recording) Close() { r.unwound.Close() }

// A Sample is what was running when a sample was taken.
type Sample struct {
	Event  string // as perf prints it
	Time   uint64 // ns of the recording's clock; 0 if it has none
	Period uint64 // events that the sample stands for; ns of CPU time for cpu-clock; 0 if it is not recorded
	CPU    uint32 // 0 also if it is not recorded
	Thread profile.Thread
	// Stack begins with the sampled instruction; the last frame is the outermost. The kernel's frames come before
	// those of the process.
	Stack []profile.Frame
	// End is why the user part of the stack ends where it does: only [profile.Complete] and [profile.Joined] ones have
	// their root.
	End profile.End
}

// Samples returns the samples in the order of time, with the functions of their stacks, but without source lines
// and inlined functions. A sample belongs to the recording, which uses its memory again for the next one.
//
// An error comes last, with a nil Sample. If the rest of the file cannot be read, [errors.As] finds a
// *[perfdata.DamageError] in it. Each call reads the file anew.
func (r *Recording) Samples() iter.Seq2[*Sample, error] {
	return func(yield func(*Sample, error) bool) {
		if err := r.read(func(s *Sample) bool { return yield(s, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// read calls yield with each sample until that returns false.
func (r *Recording) read(yield func(*Sample) bool) error {
	reader, err := perfdata.Open(r.unwound.Path)
	if err != nil {
		return err
	}
	defer reader.Close()
	names := symbols.New(symbols.Options{
		Root: r.options.Symfs, Cache: r.options.Cache, Recorded: recorded.RecordedAt(r.path),
	})
	w := &watcher{recording: r, reader: reader, yield: yield}
	p, err := profile.Load(reader, names, profile.Options{NoStacks: true, Watcher: w})
	switch {
	case w.stopped:
		return nil
	case err != nil:
		return errors.Join(err, r.damage)
	}
	r.problems = p.Problems
	return errors.Join(p.Damage, r.damage)
}

// Image is the file that a frame of the last sample lies in, or what else it lies in: the kernel, for example.
func (r *Recording) Image(f *profile.Frame) *profile.Image { return &r.profile.Images[f.Image] }

// Problems says in words why names or samples are missing, once all samples were read.
func (r *Recording) Problems() []string { return r.problems }

// A watcher makes samples of what is loaded. It is a [profile.Observer].
type watcher struct {
	recording *Recording
	reader    *perfdata.Reader
	yield     func(*Sample) bool
	sample    Sample
	stopped   bool
}

// Begin takes the profile that is loaded.
func (w *watcher) Begin(p *profile.Profile) { w.recording.profile = p }

// Record takes a record that is no sample: what it changes is in the profile.
func (w *watcher) Record(*replay.Change, *perfring.SampleFormat, uint64) {}

// Sample hands a sample on.
func (w *watcher) Sample(s *perfring.Sample, frames []int32, thread int32) {
	if w.stopped {
		return
	}
	p := w.recording.profile
	w.sample = Sample{
		Event: p.Events[w.reader.Event(s.ID)].Name, Time: s.Time, Period: s.Period, CPU: s.CPU,
		Thread: p.Threads[thread], Stack: w.sample.Stack[:0], End: profile.EndOf(s.Misc),
	}
	for _, f := range frames {
		w.sample.Stack = append(w.sample.Stack, p.Frames[f])
	}
	if !w.yield(&w.sample) {
		w.stopped = true
		w.reader.Stop()
	}
}
