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

// differenceFlags say how two recordings are compared.
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

// compare prints what differs between two recordings, and writes the page.
func (f *differenceFlags) compare(files []string) (err error) {
	if slices.Equal(files, []string{"-", "-"}) {
		return errors.New("standard input holds one recording, not two")
	}
	f.Files = [2]string(files)
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
	paths := slices.Clone(files)
	confined, err := f.reader.confineReading(reading{
		outputs: []*outfile.Place{f.page}, inputs: []*string{&paths[0], &paths[1]}, names: f.names,
		verbose: f.AllNotes,
	})
	if err != nil {
		return err
	}
	defer confined.close()
	m, err := f.recordings(ctx, paths)
	if err != nil {
		return err
	}
	for _, s := range m.Sides {
		defer s.Timeline.Close()
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
	title := filepath.Base(f.Files[difference.A]) + " → " + filepath.Base(f.Files[difference.B])
	if f.Filter != "" {
		title += ", " + f.Filter
	}
	err = flamegraph.WriteDifference(file, m, flamegraph.DifferencePage{
		Title: title, Files: f.Files, Amounts: f.Amounts,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", f.html, err)
	}
	return file.Keep()
}

// recordings reads the recordings at two paths.
func (f *differenceFlags) recordings(ctx context.Context, paths []string) (*difference.Merged, error) {
	line := newStatusLine(os.Stderr)
	defer line.clear()
	var sides [2]difference.Side
	var none []error // where the filter leaves no sample: in one of the two, that is a difference
	for side, path := range paths {
		timeline, err := profile.NewTimeline()
		if err != nil {
			return nil, err
		}
		o := f.load
		o.Timeline = timeline
		p, err := load.Profile(ctx, f.names.loading(ctx, path, line, o))
		line.clear()
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				err = fmt.Errorf("%s: %w", f.Files[side], err)
			}
			var nothing *profile.NothingError
			if none = append(none, err); p == nil || !errors.As(err, &nothing) || len(none) == len(paths) {
				return nil, errors.Join(none...)
			}
			p.Problems = append(p.Problems, nothing.Error())
		}
		sides[side] = difference.Side{Profile: p, Timeline: timeline}
	}
	return difference.Merge(sides[0], sides[1], f.merge)
}
