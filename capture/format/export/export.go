package export

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// Options say what is written and how names are found.
type Options struct {
	Format  Format
	Input   string        // a perf.data with callchains
	Name    string        // the name of the input in the output; "" for Input
	Output  string        // file, "-" for stdout
	Place   *output.Place // the place of Output, if it was found already; else nil
	Symbols symbols.Options
	Lines   bool // source lines and inlined functions
	NoNames bool // leave finding names to the reader, if the format allows that
	Filter  profile.Filter
	// CommandLines keeps those of processes, if the format has that.
	CommandLines bool
	// NoProcesses leaves out what the names of processes and threads add to stacks, if the format has that.
	NoProcesses bool

	// Progress is called now and then with the share of the input that has been read, and with 1 when the
	// output is written. Between these, Lookup is called with the number of images in which Lines were looked
	// up, and of all.
	Progress func(share float64)
	Lookup   func(done, images int)
}

// Exported is the result of an export.
type Exported struct {
	Samples, Written uint64        // samples, and bytes of the output
	Lost             uint64        // samples or records, as [profile.Profile.Lost] counts them
	Problems         []string      // why names or frames are missing
	Notes            profile.Notes // the same, those of a kind together
}

// job is one export.
type job struct {
	Options
	ctx    context.Context
	reader *perfdata.Reader
}

// writer loads the job's recording and writes it.
type writer func(j *job, w io.Writer) (*profile.Profile, error)

// Write writes a recording in another format. A file gets its name when it is complete; a file that has
// that name stays until then.
func Write(ctx context.Context, o Options) (out Exported, err error) {
	if o.Name == "" {
		o.Name = o.Input
	}
	if o.Place == nil {
		if o.Place, err = output.Find(o.Output); err != nil {
			return out, err
		}
		defer o.Place.Close()
	}
	if err := o.Place.CheckInput(o.Input); err != nil {
		return out, err
	}
	r, err := perfdata.Open(o.Input)
	if err != nil {
		return out, err
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, r.Stop)
	defer stop()
	file, err := o.Place.Create()
	if err != nil {
		return out, err
	}
	defer file.Discard()
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
		err = file.Keep()
	}
	if err != nil {
		return out, err
	}
	said := *p // but for what is an error
	said.Problems = problems(p)
	out = Exported{
		Samples: p.Count(), Written: counted.n, Lost: p.Lost(), Problems: said.Problems, Notes: said.Notes(),
	}
	return out, errors.Join(p.Damage, r.FeatureDamage())
}

// problems are the problems of p without its damage, which is an error.
func problems(p *profile.Profile) []string {
	if p.Damage == nil {
		return p.Problems
	}
	return slices.DeleteFunc(slices.Clone(p.Problems), func(s string) bool {
		return strings.HasSuffix(s, p.Damage.Error())
	})
}

// load reads the recording into a profile.
func (j *job) load(o profile.Options) (*profile.Profile, error) {
	o.Lines, o.Filter, o.Lookup = j.Lines, j.Filter, j.Lookup
	if j.Progress != nil {
		o.Progress = func(uint64) {
			if read, total := j.reader.Position(); total > 0 {
				j.Progress(float64(read) / float64(total))
			}
		}
		defer j.Progress(1)
	}
	p, err := profile.Load(j.reader, symbols.New(j.Symbols), o)
	if err == nil && !j.CommandLines {
		p.CommandLines = nil
	}
	return p, err
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
