package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// Options say what is written and how names are found.
type Options struct {
	Format  Format
	Input   string // a perf.data with callchains
	Name    string // what the input is called in the output; "" for Input
	Output  string // file, "-" for stdout
	Symbols symbols.Options
	Lines   bool // source lines and inlined functions
	NoNames bool // leave addresses to the reader, where the format can do without names

	// Progress is called now and then with the share of the input that has been read; then, with 1, while names are looked up.
	Progress func(share float64)
}

// Outcome is what an export came to.
type Outcome struct {
	Samples, Written uint64 // samples, and bytes of the output
	Lost             uint64
	Problems         []string // why names or frames are missing
}

// job is one export on its way.
type job struct {
	Options
	ctx    context.Context
	reader *perfdata.Reader
}

// writer loads the job's recording and writes it.
type writer func(j *job, w io.Writer) (*profile.Profile, error)

// Write writes a recording in another format. A file appears under its name when it is complete; what was there before stays
// until then.
func Write(ctx context.Context, o Options) (out Outcome, err error) {
	if o.Name == "" {
		o.Name = o.Input
	}
	if err := CheckOutput(o.Output, o.Input); err != nil {
		return out, err
	}
	r, err := perfdata.Open(o.Input)
	if err != nil {
		return out, err
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, r.Stop)
	defer stop()
	file, err := create(o.Output)
	if err != nil {
		return out, err
	}
	defer file.discard()
	counted := &counter{w: file}
	buffered := bufio.NewWriterSize(counted, 256<<10)
	j := &job{Options: o, ctx: ctx, reader: r}
	p, err := o.Format.write(j, buffered)
	if errors.Is(err, perfdata.ErrStopped) && ctx.Err() != nil {
		err = errors.New("interrupted: nothing was written")
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = file.keep()
	}
	if err != nil {
		return out, err
	}
	out = Outcome{Samples: p.Count(), Written: counted.n, Lost: p.Lost(), Problems: problems(p)}
	return out, errors.Join(p.Damage, r.FeatureDamage())
}

// problems are those of p but its damage, which is an error.
func problems(p *profile.Profile) []string {
	if p.Damage == nil {
		return p.Problems
	}
	return slices.DeleteFunc(slices.Clone(p.Problems), func(s string) bool { return strings.HasSuffix(s, p.Damage.Error()) })
}

// CheckOutput says whether the output of a conversion can't be written because of what is there: a folder, or the input, which may be "".
func CheckOutput(output, input string) error {
	st, err := os.Stat(output)
	if output == "-" || err != nil {
		return nil
	}
	if st.IsDir() {
		return fmt.Errorf("%s is a directory", output)
	}
	if in, err := os.Stat(input); err == nil && in.Mode().IsRegular() && os.SameFile(in, st) {
		return fmt.Errorf("%s: input and output are the same file", output)
	}
	return nil
}

// load reads the recording into a profile.
func (j *job) load(o profile.Options) (*profile.Profile, error) {
	o.Lines = j.Lines
	if j.Progress != nil {
		o.Progress = func(uint64) {
			if read, total := j.reader.Position(); total > 0 {
				j.Progress(float64(read) / float64(total))
			}
		}
		defer j.Progress(1)
	}
	return profile.Load(j.reader, symbols.New(j.Symbols), o)
}

// output is a file that appears when it is complete, or something else to write to, which takes the bytes at once.
type output struct {
	*os.File
	name string // that it shall have; "" when it has its name already
	ours bool   // to be closed
}

func create(name string) (*output, error) {
	if name == "-" {
		return &output{File: os.Stdout}, nil
	}
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		return &output{File: f, ours: true}, err
	}
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target // a link stays one, /dev/stdout above all
	}
	temporary := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%s.%d", filepath.Base(name), os.Getpid()))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			path.Path = name // not a name that nobody has asked for
		}
		return nil, err
	}
	return &output{File: f, name: name, ours: true}, nil
}

// keep completes the output.
func (o *output) keep() error {
	if !o.ours {
		return nil
	}
	o.ours = false
	err := o.Close()
	if o.name != "" && err == nil {
		if err = os.Rename(o.File.Name(), o.name); err != nil {
			os.Remove(o.File.Name())
		}
	}
	return err
}

// discard gives an output up that was not kept.
func (o *output) discard() {
	if !o.ours {
		return
	}
	o.ours = false
	o.Close()
	if o.name != "" {
		os.Remove(o.File.Name())
	}
}

type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += uint64(n)
	return n, err
}
