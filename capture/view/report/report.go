package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// Advice is how the names of files are to be had, "" if it does not know, and by file whether it is one of
// those.
type Advice func(files []profile.Image) (how string, of []bool)

// Options say what is printed. The zero value is what `unspool report` does in a pipe.
type Options struct {
	File string // the recording's name, for the first line; "" leaves it out
	// smallest share of the samples that the tree shows, in percent; 0 for 1, negative for no limit
	PercentLimit float64
	By           By     // Source needs a profile with source lines
	Filter       string // a description of the filter with which the profile was loaded
	// number of functions in the table; 0 for 20, or for 5 in each group if By is not Function; negative
	// for none
	Top      int
	Width    int  // of a line in columns; 0 for no limit, with lines broken at about 100
	Colour   bool // with ANSI escape sequences, by share
	NoKernel bool // leave out kernel frames: their time counts for the user function that called the kernel
	AllNotes bool // each one, not the first few kinds
	Programs bool // below what 100 % is: the shares of the programs, if there are several
	// Advice is nil for no advice. It is asked once, for the files with most samples.
	Advice Advice

	whole bool // Width is no limit
}

const (
	defaultLimit = 1
	defaultTop   = 20
	defaultTopBy = 5
	defaultWidth = 100 // for what is broken or padded without a limit
	minWidth     = 40
)

// Write prints the profile. The error is the first one of w, or says why the profile is not valid.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckIndices(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	o.settle()
	if o.By != Source {
		p = p.ByFunction()
	}
	out := &printer{w: bufio.NewWriter(w), o: o}
	sampled := p.Sampled()
	viewOf := newTreeView
	if o.By != Function {
		viewOf = newView
	}
	views := make(chan *view)
	go func() { // meanwhile, the header has to ask other programs for its advice
		for _, event := range sampled {
			views <- viewOf(p, event, o.NoKernel)
		}
	}()
	out.header(p, sampled, "file")
	for _, event := range sampled {
		v := <-views
		if len(sampled) > 1 {
			out.line("")
			out.line(out.bold(fmt.Sprintf("%s: %s", human.Clean(p.Events[event].Name),
				human.Plural(v.samples, "sample"))))
			out.whole(p, event)
		}
		if o.By != Function {
			out.groups(v)
			continue
		}
		out.functions(v)
		out.tree(v)
	}
	if len(sampled) == 0 {
		out.line("")
		if o.Filter != "" {
			out.line(human.Clean(fmt.Sprintf("The recording holds no samples of %s.", o.Filter)))
		} else {
			out.line("The recording holds no samples.")
		}
	}
	out.notes(p)
	return out.w.Flush()
}

// settle puts the defaults in the place of zeros.
func (o *Options) settle() {
	if o.PercentLimit == 0 {
		o.PercentLimit = defaultLimit
	}
	if o.Top == 0 {
		o.Top = defaultTop
		if o.By != Function {
			o.Top = defaultTopBy
		}
	}
	if o.whole = o.Width == 0; o.whole {
		o.Width = defaultWidth
	}
	o.Width = max(o.Width, minWidth)
}

// cut shortens text to n columns, unless lines have no limit.
func (out *printer) cut(text string, n int) string {
	if out.o.whole {
		return text
	}
	return human.Shorten(text, n)
}

// widestWhole is to how many columns names are padded where lines have no limit.
const widestWhole = 80

// fit is how many columns names take in a table that has room for so many.
func (out *printer) fit(names, room int) int {
	if out.o.whole {
		room = max(room, widestWhole)
	}
	return min(names, room)
}

// notes prints why names are missing: behind what was asked for, as there may be a note for each file.
func (out *printer) notes(profiles ...*profile.Profile) {
	var all []string
	for _, p := range profiles {
		notes := p.Notes().Names
		if out.o.AllNotes {
			notes = slices.DeleteFunc(slices.Clone(p.Problems), func(problem string) bool {
				_, ofNames := p.Kinds[problem]
				return !ofNames
			})
		}
		for _, note := range notes {
			if !slices.Contains(all, note) {
				all = append(all, note)
			}
		}
	}
	if !out.o.AllNotes {
		all = profile.Few(all, "-v lists them")
	}
	if len(all) == 0 {
		return
	}
	out.line("")
	for _, note := range all {
		out.field("note", human.Clean(note))
	}
}

// printer writes lines; Flush returns the first error of the writer below it.
type printer struct {
	w    *bufio.Writer
	o    Options
	said map[string]string // the last value of fields of the header
}

func (out *printer) line(s string) {
	_, _ = out.w.WriteString(strings.TrimRight(s, " "))
	_ = out.w.WriteByte('\n')
}

// field prints a line of the header, in several lines when the value is long.
func (out *printer) field(name, value string) {
	if value == "" {
		return
	}
	for _, part := range human.Wrap(value, out.o.Width-10) {
		if !strings.Contains(part, "`") { // a command is of use as a whole only
			part = out.cut(part, out.o.Width-10)
		}
		out.line(fmt.Sprintf("%-9s %s", name, part))
		name = ""
	}
}

// once prints a field of the header, unless that of another recording before has said the same.
func (out *printer) once(name, value string) {
	if out.said[name] != value {
		out.field(name, value)
	}
	if out.said == nil {
		out.said = make(map[string]string)
	}
	out.said[name] = value
}

// header returns what was recorded; the first line, the file's name, has a name of its own.
func (out *printer) header(p *profile.Profile, sampled []int32, file string) {
	out.field(file, human.Clean(out.o.File))
	out.command(p)
	out.field("recorded", p.When())
	out.origin(p, sampled)
	out.field("samples", taken(p, human.Number(p.Count())))
	if len(sampled) == 1 {
		out.whole(p, sampled[0])
	}
	out.field("stacks", stacks(p))
	for _, line := range out.broken(p) {
		out.field("stacks", human.Clean(line))
	}
	for _, line := range out.nameless(p) {
		out.field("names", human.Clean(line))
	}
	for _, note := range p.Notes().Recording {
		out.field("note", human.Clean(note))
	}
}

// command returns the command that was recorded, unless it is that of the recording before.
func (out *printer) command(p *profile.Profile) {
	var words []string
	for _, arg := range p.Command {
		words = append(words, quote(arg))
	}
	out.once("command", human.Clean(strings.Join(words, " ")))
}

// origin returns on which host events were recorded, and which, unless it is that of the recording before.
func (out *printer) origin(p *profile.Profile, sampled []int32) {
	out.once("host", human.Clean(
		strings.Join(strings.Fields(strings.Join([]string{p.Hostname, p.OSRelease, p.Arch}, " ")), " ")))
	var names []string
	for _, event := range sampled {
		names = append(names, p.Events[event].Name)
	}
	out.once("events", human.Clean(strings.Join(names, ", ")))
	out.once("only", human.Clean(out.o.Filter))
}

// taken returns how many samples there are, in words, in which time, and how many were lost.
func taken(p *profile.Profile, count string) string {
	samples := fmt.Sprintf("%s of %s", count, human.Plural(uint64(len(p.Threads)), "thread"))
	if p.Duration > 0 {
		samples += " in " + human.Duration(p.Duration)
	}
	if lost := p.Lost(); lost > 0 {
		samples += fmt.Sprintf(", %s lost", human.Number(lost))
	} else {
		samples += ", none lost"
	}
	if p.Throttled > 0 {
		samples += fmt.Sprintf(", throttled %s", human.Plural(p.Throttled, "time"))
	}
	return samples
}

// whole returns what 100 % of an event's samples are, and of which programs.
func (out *printer) whole(p *profile.Profile, event int32) {
	out.field("100 % is", p.WholeOf(event))
	if out.o.Programs {
		out.field("programs", programs(p, event, out.o.Width-len("programs  ")))
	}
}

// outcomes counts the user stacks by why they end, as far as the recordings say.
func outcomes(profiles ...*profile.Profile) (stacks uint64, ended map[profile.End]uint64) {
	var by [math.MaxUint8 + 1]uint64
	for _, p := range profiles {
		for i := range p.Samples {
			s := &p.Samples[i]
			by[s.End] += s.Count
		}
	}
	ended = make(map[profile.End]uint64)
	for end, n := range by {
		if end := profile.End(end); end != profile.Unsaid && n > 0 {
			ended[end] = n
			stacks += n
		}
	}
	return stacks, ended
}

// stacks returns how many user stacks are complete, and why the others are not; "" if the recordings do not
// have that.
func stacks(profiles ...*profile.Profile) string {
	all, ended := outcomes(profiles...)
	if all == 0 {
		return ""
	}
	joined := ended[profile.Joined]
	complete := ended[profile.Complete] + joined
	text := "all complete"
	if complete < all {
		text = human.Percent(complete, all) + " complete" // as the recording's own summary has it
	}
	if joined > 0 {
		text += fmt.Sprintf(" (%s joined)", human.Percent(joined, all))
	}
	delete(ended, profile.Complete)
	delete(ended, profile.Joined)
	reasons := slices.SortedFunc(maps.Keys(ended), func(a, b profile.End) int {
		return cmp.Or(cmp.Compare(ended[b], ended[a]), cmp.Compare(a, b))
	})
	separator := "; "
	for _, r := range reasons {
		text += fmt.Sprintf("%s%s %s", separator, human.Number(ended[r]), r.Words())
		separator = ", "
	}
	return text
}

// quote quotes arg as a word of a command line.
func quote(arg string) string {
	if arg != "" && !strings.ContainsAny(arg, " \t\n'\"\\$&|;<>()*?[]#~`") {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
