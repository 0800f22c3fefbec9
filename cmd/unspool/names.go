package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unspool/capture"
	"unspool/capture/load"
	"unspool/capture/opener"
	"unspool/capture/packages"
	"unspool/capture/profile"
	"unspool/capture/report"
	"unspool/capture/symbols"
	"unspool/capture/symbols/debuginfod"
)

// nameFlags say where the files of images are, and how names are shown.
type nameFlags struct {
	symfs   string
	cache   string
	shorten bool

	confined *confinement  // of the process that looks names up; nil for none
	opener   *opener.Files // opens files where servers may not answer; nil for this process
	files    []*os.File    // of the recording that was just made, which may be gone by now
}

func (f *nameFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.symfs, "symfs", "", "look for mapped files below `DIR` first")
	fl.StringVar(&f.cache, "buildid-dir", "", "perf's build-ID cache is `DIR` (default ~/.debug)")
	c.MarkFlagDirname("symfs")
	c.MarkFlagDirname("buildid-dir")
	f.addShorten(c)
}

// check refuses what is no directory, before a recording whose names are looked for there. Root may not be
// allowed to look: FUSE keeps it out of a user's file systems, in whose name they are read later.
func (f *nameFlags) check() error {
	err := (&capture.ConvertOptions{Symfs: f.symfs, Cache: f.cache}).Check()
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func (f *nameFlags) addShorten(c *cobra.Command) {
	c.Flags().BoolVar(&f.shorten, "shorten", false, "shorten names: leave out the arguments of templates")
}

// sources are the options of a Symbolizer for a recording, whose path is "" if it is being made. Files that
// are not on this machine are fetched from debuginfod servers, if DEBUGINFOD_URLS names any; line shows that,
// and ctx ends it.
func (f *nameFlags) sources(ctx context.Context, recording string, line *statusLine) symbols.Options {
	o := symbols.Options{Root: f.symfs, Cache: f.cache, Shorten: f.shorten, Files: f.files,
		Recorded: capture.RecordedAt(recording)}
	if f.confined != nil {
		generated := f.confined.client.Names()
		generated.Until(ctx.Done())
		o.Generated, o.Kernel = generated.Open, f.confined.kernelFile
	}
	if f.opener != nil {
		f.opener.Until(ctx.Done())
		o.Opener = f.opener
	}
	d, ok := debuginfod.Environment()
	if !ok {
		return o
	}
	if line != nil && line.terminal {
		d.Progress = debuginfod.Status(func(text string) {
			if text == "" {
				line.clear()
			} else {
				line.show(text)
			}
		})
	}
	o.Debuginfod = debuginfod.New(ctx, d)
	return o
}

// closeFiles closes the files of the recording.
func (f *nameFlags) closeFiles() {
	for _, file := range f.files {
		file.Close()
	}
	f.files = nil
}

// advice says how the names of a recording's files are to be had: by which packages, if the recording is of
// this machine, or from a server.
func (f *nameFlags) advice(p *profile.Profile) report.Advice {
	return func(images []profile.Image) (how string, of []bool) {
		var files []packages.File
		for _, im := range images {
			distributed := packages.IsDistributed(im.Path)
			of = append(of, distributed)
			if distributed {
				files = append(files, packages.File{Path: im.Path, BuildID: im.BuildID})
			}
		}
		if len(files) == 0 {
			return "", of
		}
		var ways []string
		var system packages.System
		host, err := os.Hostname()
		if f.symfs == "" && err == nil && (p.Hostname == "" || p.Hostname == host) {
			if how := system.Install(files); how != "" {
				ways = append(ways, how)
			}
		}
		if _, fetches := debuginfod.Environment(); !fetches {
			ways = append(ways, "set DEBUGINFOD_URLS="+shellWord(cmp.Or(system.Servers(), publicServer)))
		}
		return strings.Join(ways, ", or "), of
	}
}

// shellWord quotes a list for a shell.
func shellWord(list string) string {
	if strings.Contains(list, " ") {
		return "'" + list + "'"
	}
	return list
}

// publicServer has the debug files of most distributions.
const publicServer = "https://debuginfod.elfutils.org"

// loading are the options for loading a recording; line shows the progress, and ctx ends it.
func (f *nameFlags) loading(ctx context.Context, path string, line *statusLine,
	o profile.Options) load.Options {
	return load.Options{
		Convert: capture.ConvertOptions{
			Input: path, Symfs: f.symfs, Cache: f.cache, MaxStack: defaultMaxStack, Progress: line.converted,
			OpenKernel: f.openKernel, Files: f.opener, CommandLines: true,
		},
		Symbols: f.sources(ctx, path, line),
		Profile: o,
		Named:   line.named,
		Lookup:  line.looking,
	}
}
