package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"unspool/capture/profile"
	"unspool/capture/recorded"
	"unspool/capture/rights/opener"
	"unspool/capture/symbols"
	"unspool/capture/symbols/debuginfod"
	"unspool/capture/symbols/packages"
	"unspool/capture/view/load"
	"unspool/capture/view/report"
	"unspool/vmas/process"
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
	err := (&recorded.Options{Symfs: f.symfs, Cache: f.cache}).Check()
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
		Recorded: recorded.RecordedAt(recording)}
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

// advice returns how the names of a recording's files are to be had: by which packages of the system that they are of,
// or from a server.
func (f *nameFlags) advice(p *profile.Profile) report.Advice {
	return func(images []profile.Image) (how string, of []bool) {
		var files []profile.Image
		for _, im := range images {
			distributed := packages.IsDistributed(im.Path)
			of = append(of, distributed)
			if distributed {
				files = append(files, im)
			}
		}
		if len(files) == 0 {
			return "", of
		}
		var ways []string
		f.bySystem(p, files, func(s *packages.System, which []int) {
			var found []packages.File
			for _, i := range which {
				found = append(found, packages.File{Path: files[i].Path, BuildID: files[i].BuildID})
			}
			if how := s.Install(found); how != "" {
				if s.Root != "" {
					how += " in " + s.Root
				}
				ways = append(ways, how)
			}
		})
		if _, fetches := debuginfod.Environment(); !fetches {
			ways = append(ways, "set DEBUGINFOD_URLS="+shellWord(cmp.Or(new(packages.System).Servers(), publicServer)))
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

// owners are the packages of a recording's files, with their versions; "" where no system that is here has the file.
func (f *nameFlags) owners(p *profile.Profile, images []profile.Image) []string {
	owners := make([]string, len(images))
	f.bySystem(p, images, func(s *packages.System, which []int) {
		var paths []string
		for _, i := range which {
			paths = append(paths, images[i].Path)
		}
		for k, owner := range s.Owners(paths) {
			owners[which[k]] = owner
		}
	})
	return owners
}

// bySystem calls do for each system that has some of the recorded files, with their indexes.
func (f *nameFlags) bySystem(p *profile.Profile, files []profile.Image, do func(s *packages.System, which []int)) {
	var opened process.FileOpener
	if f.opener != nil {
		opened = f.opener
	}
	found := make([]bool, len(files))
	// On another machine, only a build ID shows which file it is.
	proven := f.symfs != "" || isOfThisMachine(p)
	for _, root := range f.roots(p) {
		s := &packages.System{Root: root}
		var which []int
		for i, im := range files {
			if !found[i] && (proven || len(im.BuildID) > 0) && s.Has(opened, im.Path, im.BuildID, im.File) {
				found[i] = true
				which = append(which, i)
			}
		}
		if len(which) > 0 {
			do(s, which)
		}
	}
}

// isOfThisMachine reports whether a recording was made here, as far as it says where.
func isOfThisMachine(p *profile.Profile) bool {
	host, err := os.Hostname()
	return p.Hostname == "" || err == nil && p.Hostname == host
}

// roots are those that files of a recording may be of: the one that the user names, or else this machine's and, while
// they run and this process may look there, those of the recorded processes, as in a container.
func (f *nameFlags) roots(p *profile.Profile) []string {
	switch {
	case f.symfs != "":
		return []string{f.symfs}
	case f.confined != nil || !isOfThisMachine(p): // Landlock lets no process through another one's root
		return []string{""}
	}
	const most = 64
	known := make(map[[2]uint64]bool)
	var roots []string
	add := func(root, path string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && !known[[2]uint64{st.Dev, st.Ino}] && len(roots) < most {
			known[[2]uint64{st.Dev, st.Ino}] = true
			roots = append(roots, root)
		}
	}
	add("", "/")
	seen := map[uint32]bool{0: true}
	for _, t := range p.Threads {
		if !seen[t.PID] {
			seen[t.PID] = true
			path := fmt.Sprintf("/proc/%d/root", t.PID)
			add(path, path+"/")
		}
	}
	return roots
}

// publicServer has the debug files of most distributions.
const publicServer = "https://debuginfod.elfutils.org"

// loading are the options for loading a recording; line shows the progress, and ctx ends it.
func (f *nameFlags) loading(ctx context.Context, path string, line *statusLine,
	o profile.Options) load.Options {
	return load.Options{
		Convert: recorded.Options{
			Input: path, Symfs: f.symfs, Cache: f.cache, MaxStack: defaultMaxStack, Progress: line.converted,
			OpenKernel: f.openKernel, Files: f.opener, CommandLines: true,
		},
		Symbols: f.sources(ctx, path, line),
		Profile: o,
		Named:   line.named,
		Lookup:  line.looking,
	}
}
