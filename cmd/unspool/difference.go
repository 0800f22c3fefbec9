package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unspool/capture/format/flamegraph"
	outfile "unspool/capture/output"
	"unspool/capture/profile"
	"unspool/capture/profile/difference"
	"unspool/capture/view/load"
	"unspool/capture/view/report"
)

// differenceFlags say how recordings of two sides are compared.
type differenceFlags struct {
	report.Difference
	load   profile.Options
	merge  difference.Options
	json   bool
	html   string // the page's path, "" for none
	wide   bool   // lines are not cut on a terminal
	pages  bool   // through a pager, where that is of use
	color  colouring
	names  *nameFlags
	reader *sandboxFlags

	page *outfile.Place
}

// recordingsOf are the recordings of a side: an argument, or what its commas separate if no file is called so.
func recordingsOf(arg string) ([]string, error) {
	if !strings.Contains(arg, ",") {
		return []string{arg}, nil
	}
	if _, err := os.Lstat(arg); err == nil {
		return []string{arg}, nil
	}
	files := strings.Split(arg, ",")
	if slices.Contains(files, "") {
		return nil, fmt.Errorf("%s: commas stand between the recordings of a side, as in A1,A2", quoted(arg))
	}
	return files, nil
}

// compare prints what differs between the recordings of two sides, and writes the page.
func (f *differenceFlags) compare(files [2][]string) (err error) {
	all := slices.Concat(files[:]...)
	in := func(file string) bool { return file == "-" }
	if i := slices.IndexFunc(all, in); i >= 0 && slices.ContainsFunc(all[i+1:], in) {
		return errors.New("standard input holds one recording, not two")
	}
	if f.html != "" {
		if f.page, err = outfile.Find(f.html); err != nil {
			return err
		}
		defer f.page.Close()
	}
	ctx, stop := untilInterrupted()
	defer stop()
	var pages *pagerProcess
	if f.pages && isTerminal(os.Stdout) && !f.json {
		pages = startPager(os.Stdout)
		defer pages.end()
	}
	paths := [2][]string{slices.Clone(files[0]), slices.Clone(files[1])}
	var inputs []*string
	for _, of := range paths {
		for i := range of {
			inputs = append(inputs, &of[i])
		}
	}
	confined, err := f.reader.confineReading(reading{
		outputs: []*outfile.Place{f.page}, inputs: inputs, names: f.names, verbose: f.AllNotes,
	})
	if err != nil {
		return err
	}
	defer confined.close()
	runs, err := f.recordings(ctx, files, paths)
	for _, r := range slices.Concat(runs[:]...) {
		defer r.Timeline.Close()
	}
	if err != nil {
		return err
	}
	m, err := difference.Merge(runs[0], runs[1], f.merge)
	if err != nil {
		return err
	}
	if f.page != nil {
		if err := f.writePage(m); err != nil {
			return err
		}
	}
	if f.json {
		stop() // from here on a signal ends us, as it ends any program that prints
		return report.WriteDifferenceJSON(os.Stdout, m, f.Difference)
	}
	f.AdviceFor, f.Colour = f.names.advice, f.color.on(os.Stdout)
	if isTerminal(os.Stdout) && !f.wide {
		f.Width = columns(os.Stdout)
	}
	var text bytes.Buffer // whole, as files are opened for its advice
	if err := report.WriteDifference(&text, m, f.Difference); err != nil {
		return err
	}
	stop()
	return pages.show(os.Stdout, text.Bytes())
}

// writePage writes the page, which is complete when it gets its name.
func (f *differenceFlags) writePage(m *difference.Merged) error {
	file, err := f.page.Create()
	if err != nil {
		return err
	}
	defer file.Discard()
	var of [2]string
	for side, runs := range m.Runs {
		of[side] = filepath.Base(runs[0].Name)
		if more := len(runs) - 1; more > 0 {
			of[side] += fmt.Sprintf(" and %d more", more)
		}
	}
	title := of[difference.A] + " → " + of[difference.B]
	if f.Filter != "" {
		title += ", " + f.Filter
	}
	err = flamegraph.WriteDifference(file, m, flamegraph.DifferencePage{
		Title: title, Amounts: f.Amounts,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", f.html, err)
	}
	return file.Keep()
}

// recordings reads the recordings at the paths of both sides. The caller closes the timelines of what there is, also
// after an error.
func (f *differenceFlags) recordings(ctx context.Context, names, paths [2][]string) (
	runs [2][]difference.Run, err error,
) {
	line := newStatusLine(os.Stderr)
	defer line.clear()
	var none []error // where the filter leaves no sample: in one of several, that is a difference
	for side := range paths {
		for i, path := range paths[side] {
			r := difference.Run{Name: names[side][i]}
			if r.Timeline, err = profile.NewTimeline(); err != nil {
				return runs, err
			}
			o := f.load
			o.Timeline = r.Timeline
			r.Profile, err = load.Profile(ctx, f.names.loading(ctx, path, line, o))
			line.clear()
			runs[side] = append(runs[side], r)
			if err == nil {
				continue
			}
			if !strings.Contains(err.Error(), path) {
				err = fmt.Errorf("%s: %w", r.Name, err)
			}
			var nothing *profile.NothingError
			none = append(none, err)
			if r.Profile == nil || !errors.As(err, &nothing) || len(none) == len(paths[0])+len(paths[1]) {
				return runs, errors.Join(none...)
			}
			r.Problems = append(r.Problems, nothing.Error())
		}
	}
	return runs, nil
}
