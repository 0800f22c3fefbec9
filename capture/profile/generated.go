package profile

import (
	"io"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/capture/symbols/runtimes"
	"unspool/vmas"
)

// A Generator is a process that generated code, and where the names of that code come from.
type Generator struct {
	Runtime *runtimes.Runtime // nil if it is not known
	Runs    bool              // the process still ran when its names were read
	Written runtimes.Written  // what it has written about its code: a perf map, a jitdump
	Refused string            // path of such a file that was not used, "" if none: Profile.Problems say why
}

// generated is the code that a process generated at run time.
type generated struct {
	*symbols.Generated
	frames []int32 // by piece of code: its frame, plus one; its complement if it is folded
	read   uint64  // the time of the sample for which it was read
}

// generatedFrame is the frame at an address of code that a process generated, if its runtime named it. Code
// that the runtime moves, or generates again, is one function.
func (b *builder) generatedFrame(space *vmas.Space, im *image, addr uint64) (int32, bool) {
	g := b.generated[space.PID]
	if g == nil && len(b.generated) >= mostGenerated {
		return 0, false
	}
	if g == nil {
		g = b.readGenerated(space)
	}
	i, ok := g.Find(addr, b.time)
	if !ok && b.reread > 0 && b.time > g.read+uint64(b.reread) {
		g = b.readGenerated(space)
		i, ok = g.Find(addr, b.time)
	}
	if !ok {
		return 0, false
	}
	at := g.frames[i]
	if at == 0 {
		f := Frame{Name: im.Label(), Image: im.index, Kind: JIT}
		if n, ok := b.named(g.At(i).Name, &im.shares); ok {
			f.Name, f.Symbol, f.Known = n.text, n.symbol, true
		} else {
			b.nameless++
		}
		if at = b.place(f, &im.shares, im.Label()); at >= 0 {
			at++
		}
		g.frames[i] = at
	}
	if at > 0 {
		return at - 1, true
	}
	return b.unfolded(at), true
}

// readGenerated reads the names of the code that a process has generated so far.
func (b *builder) readGenerated(space *vmas.Space) *generated {
	pid := space.PID
	g := &generated{Generated: b.sym.Generated(pid, b.dumps[pid], b.time), read: b.time}
	g.frames = make([]int32, g.Len())
	b.generated[pid] = g
	if _, known := b.generators[pid]; known || len(b.generators) < mostGenerated {
		of := Generator{Runtime: runtimes.Of(space.Files()), Runs: g.Runs, Refused: g.Refused}
		switch {
		case g.Len() > 0:
			of.Written = runtimes.Names
		case g.Refused != "":
			of.Written = runtimes.Refused
		}
		b.generators[pid] = of
	}
	return g
}

// mostGenerated bounds the processes that have generated code with names.
const mostGenerated = 1 << 16

// mapped notes that a process has mapped a file.
func (b *builder) mapped(pid uint32, name string) {
	if symbols.IsJitdump(name) && b.dumps[pid] != name && len(b.dumps) < mostGenerated {
		b.dumps[pid] = name
		delete(b.generated, pid)
	}
}

// began notes that a process begins with its parent's code, or without code if parent is 0.
func (b *builder) began(pid, parent uint32) {
	delete(b.generated, pid)
	delete(b.dumps, pid)
	if dump, ok := b.dumps[parent]; ok && len(b.dumps) < mostGenerated {
		b.dumps[pid] = dump
	}
}

// keptMap finds perf maps that a recording has kept. Of several of a PID, it is the last one whose process lived at the
// time or before, else the first.
func keptMap(maps []perfdata.PerfMap) symbols.KeptMap {
	return func(pid uint32, time uint64) (io.ReadCloser, uint32) {
		var found *perfdata.PerfMap
		for i := range maps {
			m := &maps[i]
			switch {
			case m.PID != pid:
			case found == nil, m.Time <= time && (found.Time > time || m.Time >= found.Time):
				found = m
			}
		}
		if found == nil {
			return nil, 0
		}
		r, err := found.Open()
		if err != nil {
			return nil, 0
		}
		return r, found.Number
	}
}
