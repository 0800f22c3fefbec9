package export

import (
	"io"
	"path/filepath"
	"strings"

	"unspool/capture/format/firefox"
	"unspool/capture/format/flamegraph"
	"unspool/capture/format/folded"
	"unspool/capture/format/pprof"
	"unspool/capture/format/speedscope"
	"unspool/capture/format/syscap"
	"unspool/capture/profile"
)

func writePprof(j *job, w io.Writer) (*profile.Profile, error) {
	p, err := j.load(profile.Options{CPUs: true})
	if err != nil {
		return nil, err
	}
	if !j.NoNames {
		return p, pprof.Write(w, p)
	}
	out, err := pprof.Convert(p)
	if err != nil {
		return nil, err
	}
	out.Function = nil
	for _, l := range out.Location {
		l.Line = nil
	}
	for _, m := range out.Mapping {
		m.HasFunctions, m.HasFilenames, m.HasLineNumbers, m.HasInlineFrames = false, false, false, false
	}
	return p, out.Write(w)
}

func writeFirefox(j *job, w io.Writer) (*profile.Profile, error) {
	timeline, err := profile.NewTimeline()
	if err != nil {
		return nil, err
	}
	defer timeline.Close()
	lives := firefox.NewLives()
	p, err := j.load(profile.Options{Timeline: timeline, Watcher: lives})
	if err != nil {
		return nil, err
	}
	return p, firefox.Write(w, p, timeline, firefox.Options{Name: filepath.Base(j.Name), Lives: lives})
}

func writeSpeedscope(j *job, w io.Writer) (*profile.Profile, error) {
	timeline, err := profile.NewTimeline()
	if err != nil {
		return nil, err
	}
	defer timeline.Close()
	p, err := j.load(profile.Options{Timeline: timeline, Processes: !j.NoProcesses})
	if err != nil {
		return nil, err
	}
	return p, speedscope.Write(w, p, speedscope.Options{Name: filepath.Base(j.Name), Timeline: timeline})
}

func writeFlamegraph(j *job, w io.Writer) (*profile.Profile, error) {
	o := flamegraph.Options{Title: filepath.Base(j.Name)}
	if strings.HasSuffix(strings.ToLower(j.Output), ".svg") {
		o.Format = flamegraph.SVG
	} else {
		timeline, err := profile.NewTimeline()
		if err != nil {
			return nil, err
		}
		defer timeline.Close()
		o.Timeline = timeline
	}
	p, err := j.load(profile.Options{Timeline: o.Timeline, Processes: !j.NoProcesses})
	if err != nil {
		return nil, err
	}
	if only := j.Filter.String(); only != "" {
		o.Title += ", " + only
	}
	return p, flamegraph.Write(w, p, o)
}

func writeFolded(j *job, w io.Writer) (*profile.Profile, error) {
	p, err := j.load(profile.Options{})
	if err != nil {
		return nil, err
	}
	return p, folded.Write(w, p, folded.Options{NoComms: j.NoProcesses})
}

func writeSyscap(j *job, w io.Writer) (*profile.Profile, error) {
	j.Lines = false // there is no place for them
	s := syscap.New(w, j.reader, syscap.Options{NoNames: j.NoNames})
	p, err := j.load(profile.Options{Watcher: s, NoStacks: true, Functions: true})
	if err != nil {
		return nil, err
	}
	return p, s.Finish()
}
