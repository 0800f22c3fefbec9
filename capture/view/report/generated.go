package report

import (
	"fmt"
	"slices"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/symbols/runtimes"
	"unspool/unwind"
)

// generated are the processes that have samples that concern the code that they generated, given how many.
func (out *printer) generated(p *profile.Profile, counts map[uint32]uint64) (processes []runtimes.Process) {
	for pid, n := range counts {
		g := p.Generators[pid]
		of := runtimes.Process{PID: pid, Runtime: g.Runtime, Runs: g.Runs, Written: g.Written, Samples: n}
		if g.Written == runtimes.Refused && out.isNoted(p, g.Refused) {
			of.Why = theNotes
		}
		processes = append(processes, of)
	}
	for i := range processes {
		of := &processes[i]
		for _, t := range p.Threads {
			if t.PID == of.PID {
				of.Name = t.Program
				break
			}
		}
	}
	return processes
}

// namelessGenerated says of generated code without names what gives it some.
func (out *printer) namelessGenerated(p *profile.Profile, n *namelessness) (lines []string) {
	for _, g := range runtimes.Groups(out.generated(p, n.generated), leastNameless*n.all/100) {
		lines = append(lines, fmt.Sprintf("%s go through code that %s generated: %s", human.Percent(g.Samples, n.all),
			g.Who(), g.Advice()))
	}
	return lines
}

// leastInterpreted is the share of the samples, in percent, from which an interpreter is worth a line.
const leastInterpreted = 10

// interpreted says of which runtimes the functions are not in the stacks, as they have no code of their own, and what
// gives them some.
func (out *printer) interpreted(p *profile.Profile) (lines []string) {
	of := make([]*runtimes.Runtime, len(p.Images))
	for i := range p.Images {
		if r := runtimes.Of(slices.Values([]string{p.Images[i].Path})); r != nil && r.Interprets {
			of[i] = r
		}
	}
	within := make([]*runtimes.Runtime, len(p.Nodes))
	for i := 1; i < len(p.Nodes); i++ {
		if within[i] = of[p.Frames[p.Nodes[i].Frame].Image]; within[i] == nil {
			within[i] = within[p.Nodes[i].Parent]
		}
	}
	counts, runs := make(map[uint32]uint64), make(map[uint32]*runtimes.Runtime)
	var all uint64
	for _, s := range p.Samples {
		all += s.Count
		pid := p.Threads[s.Thread].PID
		if r := within[s.Node]; r != nil && p.Generators[pid].Written == runtimes.Nothing {
			counts[pid] += s.Count
			runs[pid] = r
		}
	}
	processes := out.generated(p, counts)
	for i := range processes {
		processes[i].Runtime = runs[processes[i].PID]
	}
	for _, g := range runtimes.Groups(processes, leastInterpreted*all/100) {
		lines = append(lines, fmt.Sprintf("%s go through %s, whose functions are not in the stacks: %s",
			human.Percent(g.Samples, all), g.Who(), g.Advice()))
	}
	return lines
}

// broken says of which runtimes the code breaks stacks, and what to do.
func (out *printer) broken(p *profile.Profile) (lines []string) {
	through := make([]bool, len(p.Nodes)) // the stack has a frame of generated code
	for i := 1; i < len(p.Nodes); i++ {
		through[i] = through[p.Nodes[i].Parent] || p.Frames[p.Nodes[i].Frame].Kind == profile.JIT
	}
	counts := make(map[uint32]uint64)
	var all uint64
	for i := range p.Samples {
		s := &p.Samples[i]
		if s.End != profile.Unsaid {
			all += s.Count
		}
		pid := p.Threads[s.Thread].PID
		if through[s.Node] && breaks(s.End) && p.Generators[pid].Runtime.Frames() != "" {
			counts[pid] += s.Count
		}
	}
	for _, g := range runtimes.Groups(out.generated(p, counts), leastNameless*all/100) {
		lines = append(lines, fmt.Sprintf("%s end at code that %s generated without frame pointers, or are wrong "+
			"behind it: %s", human.Percent(g.Samples, all), g.Who(), g.Runtime.Frames()))
	}
	return lines
}

// breaks reports whether a stack may have ended where it does because generated code has no frame pointers.
func breaks(e profile.End) bool {
	return e >= profile.Complete && e != profile.Joined && unwind.Reason(e-1).MayBeBroken()
}
