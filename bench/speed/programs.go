package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"unspool/bench/section"
	"unspool/bench/workloads"
)

// A subject is a program whose recording is walked.
type subject struct {
	name  string // of the workload
	limit limit  // times the floor
	// rules is how many MiB of them it may need.
	rules limit
}

var subjects = []subject{
	{name: "python3", limit: 2},
	{name: "ruby", limit: 2},
	{name: "cc1plus", limit: 2, rules: 1},
	{name: "git log", limit: 2},
	{name: "node", limit: 2},
	{name: "postgres", limit: 2.5},
	{name: "clang", limit: 2.5, rules: 1},
	{name: "rustc", limit: 2.5, rules: 1},
	{name: storm, limit: 3},
	{name: "perl"},
	{name: "openssl speed"},
}

// storm is the workload of many processes.
const storm = "configure storm"

// coldLimit is how many µs a PC that was not seen before may take.
const coldLimit = limit(1.3)

// workload makes a program's workload in a new folder.
func (b *bench) workload(name string) (*workloads.Workload, error) {
	p := workloads.Find(name)
	if p == nil {
		return nil, fmt.Errorf("no program called %s", name)
	}
	if m := p.Missing(); m != "" {
		return nil, fmt.Errorf("no %s", m)
	}
	dir, err := os.MkdirTemp(b.dir, strings.ReplaceAll(name, " ", "-")+"-")
	if err != nil {
		return nil, err
	}
	// The database server runs as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	return &workloads.Workload{Program: p, Root: b.root, Dir: dir, Freq: b.freq, StackSize: 32768}, nil
}

// prepared makes a workload that is run without being recorded.
func (b *bench) prepared(name string) (*workloads.Workload, error) {
	w, err := b.workload(name)
	if err != nil {
		return nil, err
	}
	return w, w.Prepare()
}

// recorded is the path of a program's recording, which is made if it does not exist.
// Files that the program made are kept, as samples may lie in them.
func (b *bench) recorded(name string) (string, error) {
	path := filepath.Join(b.recordings, strings.ReplaceAll(name, " ", "-")+".data")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	w, err := b.workload(name)
	if err != nil {
		return "", err
	}
	b.say("recording %s", name)
	if err := w.Record(path); err != nil {
		os.Remove(path)
		return "", err
	}
	if v := w.Version(); v != "" {
		b.versions[name] = v
	}
	return path, nil
}

// title is a program's name with its version, where that is known.
func (b *bench) title(name string) string {
	return strings.TrimSpace(name + " " + b.versions[name])
}

// programs measures walks of the stacks of real programs.
func (b *bench) programs() (string, error) {
	warm := section.NewTable("program", "samples", "frames", "ns/sample", "ns/frame", "floor", "asked, × floor",
		"× floor", "allocations/sample")
	floors := section.NewTable("program", "all at once, ns/frame", "ns/frame ÷ it", "in memory: ns/frame", "floor",
		"× floor", "all at once", "ns/frame ÷ it")
	cold := section.NewTable("program", "new PCs", "first pass, ms", "a later one", "asked, µs per new PC",
		"µs per new PC", "asked, MiB of rules", "MiB of rules")
	var stormy string
	for _, p := range subjects {
		if b.only != nil && !b.only[p.name] {
			continue
		}
		path, err := b.recorded(p.name)
		if err != nil {
			b.leaveOut(p.name, err)
			continue
		}
		r, err := load(path)
		if err != nil {
			b.leaveOut(p.name, err)
			continue
		}
		w, first, err := r.cold(b.passes)
		if err != nil {
			return "", err
		}
		s, err := w.warm(b.passes)
		if err != nil {
			return "", err
		}
		w.block = nil
		m, err := w.warm(b.passes)
		if err != nil {
			return "", err
		}
		b.say("%s: %.1f ns/frame, %.2f × floor", p.name, s.perFrame(s.walk), s.ratio())
		title := b.title(p.name)
		warm.Add(title, thousands(s.samples), fmt.Sprintf("%.1f", float64(s.frames)/float64(s.samples)),
			number(s.perSample()), number(s.perFrame(s.walk)), number(s.perFrame(s.floor)),
			p.limit.String(), p.limit.mark(s.ratio(), "%.2f"), limit(0.005).mark(s.allocs, "%.3f"))
		floors.Add(title, number(s.perFrame(s.atOnce)), number(float64(s.walk)/float64(s.atOnce)),
			number(m.perFrame(m.walk)), number(m.perFrame(m.floor)), number(m.ratio()), number(m.perFrame(m.atOnce)),
			number(float64(m.walk)/float64(m.atOnce)))

		later := s.walk + s.records
		pcs, size := w.images.Rules()
		perPC := max(0, micros(first-later)/float64(max(pcs, 1)))
		cold.Add(title, thousands(pcs), fmt.Sprintf("%.2f", millis(first)), fmt.Sprintf("%.2f", millis(later)),
			coldLimit.String(), coldLimit.mark(perPC, "%.2f"), p.rules.String(),
			p.rules.mark(float64(size)/(1<<20), "%.3f"))
		if p.name == storm {
			all := s.walk + s.records
			warm.Add("with its other records", thousands(s.samples), "", number(float64(all)/float64(s.samples)),
				number(s.perFrame(all)), number(s.perFrame(s.floor)),
				limit(0).String(), fmt.Sprintf("%.2f", float64(all)/float64(s.floor)), "")
			stormy = fmt.Sprintf("\nThe storm has %s processes with samples, and %s other records "+
				"(executable mappings, names, processes that begin and end), which take %.0f ns each.\n",
				thousands(r.processes()), thousands(r.records), float64(s.records)/float64(r.records))
		}
	}
	return "## Walks\n\n" + warm.String() + stormy +
		"\n### The same by other floors\n\n" + floors.String() +
		"\n## First pass and rules\n\n" + cold.String(), nil
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }
func millis(d time.Duration) float64 { return float64(d) / 1e6 }
