package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	outfile "unspool/capture/output"
	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/recorded"
	"unspool/capture/symbols"
	"unspool/capture/symbols/packages"
	"unspool/capture/verdict/compare"
	"unspool/perfring"
)

// compareFlags are the options of compare as they are typed.
type compareFlags struct {
	recordFlags
	json      bool
	color     colouring
	wide      bool
	html      string
	failUnder []string
	failOver  []string
	by        []string
	sort      string
	comms     []string
	builds    bool
	price     bool
	rounds    positive
	nameFlags

	commands [2]string // of builds
	passed   []string  // options that are those of record, as typed; of builds and prices

	least, most []limit
	rows        []compare.RowsBy
	order       compare.Order
	page        *outfile.Place // of html
}

// A limit is how many percent of the samples a part of them must have, or may have.
type limit struct {
	key     string
	percent float64
}

// mostToldHz is the highest rate at which the verdict tells the cost: what a sample costs was measured one by one, and
// -F max is no rate.
const mostToldHz = 20_000

// statusUnder is the exit status when a part of the samples has less than --fail-under asks for, or more than
// --fail-over allows.
const statusUnder = 1

func compareCommand(status *int) *cobra.Command {
	// 64 KiB a sample fill the usual ring in an eighth of a second.
	f := compareFlags{recordFlags: recordFlags{stackSize: perfring.MaxStackSize, ring: "64M"}}
	c := &cobra.Command{
		Use:   "compare [options] -a | -p PID | -- COMMAND [ARG…] | FILE | --builds 'A' 'B'",
		Short: "Compare frame-pointer stacks with DWARF stacks, or the times of two builds",
		Long: `Say in one sentence how many stacks are usable with frame pointers, how many show a
call that never was, which package is to blame, and what sampling costs. A stack is
usable if it has every frame from main, or where its thread begins, to the leaf's caller.
Each sample carries both answers: the kernel's walk along frame pointers, and the
stack as its unwind tables have it. FILE is a recording with raw stacks, of
'perf record --call-graph dwarf'. See 'unspool report A B' for two recordings.

With --price, run COMMAND by turns without a profiler, sampled along frame pointers, and
with stacks, and say how much more CPU time that takes: at 999 and 4,999 Hz as measured,
at 20 and 99 Hz as computed from these.

With --builds, run two command lines by turns, each by sh -c, until it is known to
±0.5 % by how much their CPU times differ, and say in which functions.

No recording is kept, only the result is printed.`,
		Example: `  unspool compare -- ./program
  unspool compare -a -d 60 --html report.html
  unspool compare --price -- ./program
  unspool compare --fail-under usable=90 --fail-over false=5 -- make check
  unspool compare --builds './old -n 10' './new -n 10' --rounds 20`,
		Args: func(c *cobra.Command, args []string) error {
			if err := f.args(c, args); err != nil {
				return &usageError{"unspool compare", err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.builds {
				return f.compareBuilds()
			}
			under, failed, err := f.compare(f.files(c, args), args)
			if *status = failed; under {
				*status = statusUnder
			}
			return err
		},
		DisableFlagsInUseLine: true,
	}
	f.addRecording(c)
	fl := c.Flags()
	fl.BoolVar(&f.json, "json", false, "print everything as JSON: see 'unspool help json'")
	fl.StringVar(&f.html, "html", "", "write a page with both flame graphs to `FILE`")
	refuseEmpty(fl, "html")
	fl.StringArrayVar(&f.failUnder, "fail-under", nil,
		"exit with status 1 when `WHAT=PERCENT` is not reached: usable, false, or a class by its key in --json")
	fl.StringArrayVar(&f.failOver, "fail-over", nil, "exit with status 1 when `WHAT=PERCENT` is exceeded")
	fl.StringSliceVar(&f.by, "by", nil,
		"add up by `WHAT`: program, comm, image or package, or several (default program,package)")
	fl.StringVar(&f.sort, "sort", "",
		"sort these rows by `WHAT`: samples, lost (frames), false or unusable (default samples)")
	fl.StringSliceVar(&f.comms, "comm", nil,
		"only threads called `NAME`, which may be a pattern like 'cc1*', or several, NAME,NAME…")
	refuseEmpty(fl, "by", "sort", "comm")
	fl.BoolVar(&f.builds, "builds", false,
		"compare the times of two builds at the same work: 'A' and 'B' are command lines for sh -c")
	fl.BoolVar(&f.price, "price", false,
		"run COMMAND by turns without a profiler, by frame pointers and by stacks, and say what these cost it")
	fl.Var(&f.rounds, "rounds", "of builds: end after `N` rounds at the latest; of a price: N rounds (default 8)")
	f.nameFlags.add(c)
	f.color.add(c)
	addWide(fl, &f.wide)
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but the result and errors")
	addVerbose(fl, &f.verbose)
	f.sandboxFlags.add(c, "compare")
	f.addSpool(fl)
	for _, name := range []string{"fail-under", "fail-over"} {
		c.RegisterFlagCompletionFunc(name,
			func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				var keys []string
				for _, key := range compare.PartKeys() {
					keys = append(keys, key+"=\t"+compare.PartWords(key))
				}
				return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
			})
	}
	c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(compare.ByKeys(), cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(compare.OrderKeys(), cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("comm", cobra.NoFileCompletions)
	return c
}

// args checks the arguments, and the options that say what is compared.
func (f *compareFlags) args(c *cobra.Command, args []string) error {
	if f.builds {
		return f.buildArgs(c, args)
	}
	files := f.files(c, args)
	switch {
	case f.rounds > 0 && !f.price:
		return errors.New("--rounds needs --builds or --price")
	case len(files) == 2:
		return errors.New("two recordings: 'unspool report A B' says what differs between them")
	case len(files) > 2:
		return fmt.Errorf("unexpected argument %q: compare reads one recording, and a command stands after --", files[1])
	case slices.Contains(files, "-"):
		return errors.New("compare reads a recording more than once: give a file instead of -")
	case len(files) == 0 && !f.given() && len(args) == 0:
		return errors.New("nothing to compare: give -a, -p PID, -- COMMAND, or a recording")
	case f.price:
		return f.priceArgs(c, files)
	}
	return nil
}

// files are the arguments that are recordings, and not a command.
func (f *compareFlags) files(c *cobra.Command, args []string) []string {
	if f.given() || c.ArgsLenAtDash() == 0 {
		return nil
	}
	return args
}

// check reads the options that record does not have.
func (f *compareFlags) check() (err error) {
	if f.least, err = readLimits("--fail-under", f.failUnder); err != nil {
		return err
	}
	if f.most, err = readLimits("--fail-over", f.failOver); err != nil {
		return err
	}
	f.rows = nil
	for _, key := range f.by {
		by, ok := compare.ByOf(key)
		if !ok {
			return fmt.Errorf("--by %s: must be one of %s", key, strings.Join(compare.ByKeys(), ", "))
		}
		f.rows = append(f.rows, by)
	}
	var ok bool
	if f.order, ok = compare.OrderOf(cmp.Or(f.sort, compare.OrderKeys()[0])); !ok {
		return fmt.Errorf("--sort %s: must be one of %s", f.sort, strings.Join(compare.OrderKeys(), ", "))
	}
	if err := (&profile.Filter{Comms: f.comms}).Check(); err != nil {
		return fmt.Errorf("--comm: %w", err)
	}
	if f.html == "-" {
		return errors.New("--html -: the comparison goes to stdout: name a file")
	}
	return nil
}

// readLimits reads the values of an option, such as usable=95. The last one of a key counts.
func readLimits(option string, values []string) (list []limit, err error) {
	for _, s := range values {
		key, value, _ := strings.Cut(s, "=")
		percent, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		switch {
		case !slices.Contains(compare.PartKeys(), key):
			return nil, fmt.Errorf("%s %s: unknown class: must be one of %s", option, s,
				strings.Join(compare.PartKeys(), ", "))
		case err != nil || !(percent >= 0 && percent <= 100):
			return nil, fmt.Errorf("%s %s: must be a class and a percentage, as in %s=95", option, s, key)
		}
		list = slices.DeleteFunc(list, func(l limit) bool { return l.key == key })
		list = append(list, limit{key, percent})
	}
	return list, nil
}

// compare prints the comparison. The status is that of a process that has failed and said why.
func (f *compareFlags) compare(files, command []string) (under bool, status int, err error) {
	if err := f.check(); err != nil {
		return false, 0, &usageError{"unspool compare", err}
	}
	if f.spool.path != "" {
		return false, 0, f.recordSpool(command)
	}
	if f.html != "" {
		if f.page, err = outfile.Find(f.html); err != nil {
			return false, 0, err
		}
		defer f.page.Close()
	}
	if len(files) == 0 {
		if err := f.nameFlags.check(); err != nil {
			return false, 0, err
		}
		return f.live(command)
	}
	paths := slices.Clone(files)
	confined, err := f.confineComparing("", paths)
	if err != nil {
		return false, 0, err
	}
	defer confined.close()
	under, err = f.recording(paths[0])
	return under, 0, err
}

// live records, and prints the comparison. It is confined when there is a recording.
func (f *compareFlags) live(command []string) (under bool, status int, err error) {
	folder, err := os.MkdirTemp("", "unspool-")
	if err != nil {
		return false, 0, err
	}
	defer os.RemoveAll(folder)
	pairs := filepath.Join(folder, "pairs.data")
	l, err := f.recordAndPrice(command, pairs)
	if err != nil || l.status != 0 {
		return false, l.status, err
	}
	confined, err := f.confineComparing(folder, nil)
	if err != nil {
		return false, 0, err
	}
	defer confined.close()
	under, err = f.pairs(pairs, int(f.stackSize), l)
	return under, 0, err
}

// recording prints the comparison of a recording. It may be damaged: what there is of it is compared.
func (f *compareFlags) recording(path string) (under bool, err error) {
	folder, err := os.MkdirTemp("", "unspool-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(folder)
	pairs := filepath.Join(folder, "pairs.data")
	asked, err := f.convert(path, pairs)
	var damage *perfdata.DamageError
	if err != nil && !errors.As(err, &damage) {
		return false, err
	}
	under, perr := f.pairs(pairs, asked, livePairs{})
	return under, errors.Join(err, perr)
}

// pairs prints the comparison of a temporary file with two callchains for each sample, of asked bytes of stack. The
// file is removed at once, so that its folder is empty when the opener removes that, however this process ends.
func (f *compareFlags) pairs(path string, asked int, l livePairs) (under bool, err error) {
	r, err := perfdata.Open(path)
	if err != nil {
		return false, err
	}
	defer r.Close()
	if err := os.Remove(path); err != nil {
		return false, err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	line := f.statusLine()
	sym := symbols.New(f.nameFlags.sources(ctx, path, line))
	o := profile.Options{Progress: func(uint64) {
		if read, total := r.Position(); total > 0 {
			line.named(float64(read) / float64(total))
		}
	}}
	if o.Timeline, err = profile.NewTimeline(); err != nil {
		return false, err
	}
	defer o.Timeline.Close()
	o.Filter.Comms = f.comms
	c, err := compare.Load(r, sym, o)
	line.clear()
	if err != nil {
		return false, err
	}
	if c.Samples+c.Others == 0 {
		return false, errors.New(c.DWARF.WhyEmpty())
	}
	if c.Samples == 0 {
		return false, errors.New("no sample has a user stack: there is nothing to compare")
	}
	c.Packages = func(images []profile.Image) []string { return f.owners(c.DWARF, images) }
	if l.costs != nil && f.period == 0 && f.freq <= mostToldHz {
		l.costs.Freq = uint64(f.freq)
	}
	if l.price != nil {
		l.price.Kernel, l.price.CPU = r.Text(perfdata.OSRelease), r.Text(perfdata.CPUDesc)
	}
	result, err := c.Result(sym, compare.Options{StackSize: asked, Costs: l.costs, Price: l.price, Order: f.order})
	if err != nil {
		return false, err
	}
	return f.fails(result), f.print(result, c)
}

// confineComparing gives up rights before recordings are read. The folder is the temporary one that a
// recording is in, "" for none.
func (f *compareFlags) confineComparing(folder string, inputs []string) (*confinement, error) {
	r := reading{
		outputs: []*outfile.Place{f.page}, names: &f.nameFlags, programs: packages.Programs(), verbose: f.verbose,
		after: folder != "",
	}
	if folder != "" {
		r.folders = []string{folder}
	}
	for i := range inputs {
		r.inputs = append(r.inputs, &inputs[i])
	}
	return f.confineReading(r)
}

// fails reports whether a part of the samples is below --fail-under or above --fail-over, and prints which.
func (f *compareFlags) fails(r *compare.Result) (failed bool) {
	check := func(l limit, word string, beyond func(have float64) bool) {
		part := r.Part(l.key)
		switch {
		case part.Needed > 0:
			say("%s: not enough samples to say: %s, and it takes about %s", l.key, human.Number(r.Samples),
				human.Number(part.Needed))
		case beyond(100 * part.Share):
			say("%s: %.2f %% of the samples, %s than %g %%", l.key, 100*part.Share, word, l.percent)
		default:
			return
		}
		failed = true
	}
	for _, l := range f.least {
		check(l, "less", func(have float64) bool { return have < l.percent })
	}
	for _, l := range f.most {
		check(l, "more", func(have float64) bool { return have > l.percent })
	}
	return failed
}

func (f *compareFlags) print(r *compare.Result, c *compare.Comparison) error {
	if f.page != nil {
		if err := f.writePage(r, c); err != nil {
			return err
		}
	}
	if f.json {
		return r.WriteJSON(os.Stdout)
	}
	o := compare.Style{Colour: f.color.on(os.Stdout), By: f.rows}
	if isTerminal(os.Stdout) && !f.wide {
		o.Width = columns(os.Stdout)
	}
	return r.WriteText(os.Stdout, o)
}

// convert unwinds a perf recording both ways, and returns how many bytes of each stack were asked for.
func (f *compareFlags) convert(input, output string) (asked int, err error) {
	if asked, err = copied(input); err != nil {
		return 0, err
	}
	if asked == 0 {
		return 0, fmt.Errorf("%s has no raw stacks: record with 'perf record --call-graph dwarf'",
			input)
	}
	o := recorded.Options{Input: input, Output: output, Symfs: f.symfs, Cache: f.cache,
		MaxStack: f.maxStack, Strict: f.strict, Pairs: true,
		OpenKernel: f.openKernel, Files: f.opener}
	line := f.statusLine()
	o.Progress = line.converted
	if !f.quiet {
		o.Note = line.note
	}
	ctx, stop := untilInterrupted()
	defer stop()
	_, err = recorded.Convert(ctx, o)
	line.clear()
	return asked, err
}

// copied is how many bytes of each stack a recording asked for.
func copied(input string) (most int, err error) {
	r, err := perfdata.Open(input)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if r.Pipe() { // its events are described before the first record
		if _, err := r.Next(); err != nil && err != io.EOF {
			return 0, err
		}
	}
	for _, e := range r.Events() {
		most = max(most, int(e.PerfEventAttr.Sample_stack_user))
	}
	return most, nil
}

// statusLine returns a status line, which shows nothing with --quiet.
func (f *compareFlags) statusLine() *statusLine {
	line := newStatusLine(os.Stderr)
	line.terminal = line.terminal && !f.quiet
	return line
}

// writePage writes the page of both flame graphs.
func (f *compareFlags) writePage(r *compare.Result, c *compare.Comparison) error {
	title := "Frame pointers and DWARF"
	if _, command, ok := strings.Cut(strings.Join(c.DWARF.Command, " "), " -- "); ok {
		title += ": " + command
	}
	var page bytes.Buffer
	if err := r.WritePage(&page, c, title); err != nil {
		return fmt.Errorf("%s: %w", f.html, err)
	}
	file, err := f.page.Create()
	if err != nil {
		return err
	}
	defer file.Discard()
	if _, err := file.Write(page.Bytes()); err != nil {
		return err
	}
	return file.Keep()
}
