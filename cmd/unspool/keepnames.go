package main

import (
	"fmt"
	"math"
	"os"

	"unspool/capture/live"
	outfile "unspool/capture/output"
	"unspool/capture/rights/buildidcache"
)

// Names are looked up when a recording is over, by files that may be gone by then, or are of another root. Another
// format than perf.data holds the names: who writes it is handed the files while they are open. For perf.data, they go
// into perf's build-ID cache.

// keptNames is what becomes of the sampled files of a recording.
type keptNames struct {
	cache *buildidcache.Client // nil if they do not go there
}

// keepNames makes a recording keep the files whose names are wanted.
func (f *recordFlags) keepNames(o *live.Options) (k keptNames, err error) {
	if f.exports() && f.symbols {
		o.Sampled, o.KeepFiles = f.handOn, math.MaxInt64
		return k, nil
	}
	// A stream's reader may be on another machine.
	if f.noCache || outfile.Stdout(o.Output) || o.Place != nil && o.Place.Stream() {
		return k, nil
	}
	k.cache = buildidcache.New()
	o.Sampled, o.KeepFiles = k.cache.Add, buildidcache.Most
	if !f.sandbox && os.Geteuid() != 0 {
		return k, nil // its process is started when it is needed
	}
	return k, k.cache.Start()
}

// tell prints what the cache has got, once it has it.
func (k keptNames) tell(quiet bool) {
	if k.cache == nil {
		return
	}
	report, err := k.cache.Finish()
	text := report.String()
	switch {
	case err != nil:
		say("%v", err)
	case text != "" && (!quiet || report.Failed):
		fmt.Fprintln(os.Stderr, text)
	}
}

// handOn gives files to who looks names up: the process that this one records for, if there is one.
func (f *recordFlags) handOn(sampled []live.SampledFile, _ bool) {
	var files []*os.File
	for _, s := range sampled {
		files = append(files, s.File)
	}
	if f.spool.path != "" {
		sendFiles(f.spool.asked, files)
	} else {
		f.names.files = files
	}
}
