package main

import (
	"fmt"

	"unspool/bench/section"
)

// growth walks artificial stacks, to see how the time depends on depth, processes
// and mappings.
func (b *bench) growth() (string, error) {
	l, err := openLibrary()
	if err != nil {
		return "", err
	}
	depth, err := b.growDepth(l)
	if err != nil {
		return "", err
	}
	processes, err := b.growProcesses(l)
	if err != nil {
		return "", err
	}
	mappings, err := b.growMappings(l)
	return "## Growth\n\n" + depth + "\n" + processes + "\n" + mappings, err
}

// libraryAt is where the library is mapped.
const libraryAt = 0x7f00_0000_0000

// growthFrames is how many frames each recording has, and growthDepth how many each
// stack has, unless the depth grows.
const (
	growthFrames = 400_000
	growthDepth  = 20
)

// speedOf measures an artificial recording, each stack of which must be walked to
// its end.
func (b *bench) speedOf(r *recording, depth int) (*speed, error) {
	w := r.begin()
	if err := w.pass(nil, nil); err != nil {
		return nil, err
	}
	s, err := w.warm(b.passes)
	if err == nil && s.frames != depth*s.samples {
		err = fmt.Errorf("%d samples have %d frames instead of %d each", s.samples, s.frames, depth)
	}
	return s, err
}

// growDepth makes stacks that share no frames, and stacks that share their outer half.
func (b *bench) growDepth(l *library) (string, error) {
	t := section.NewTable("frames", "all of them new, ns/frame", "floor", "× floor", "outer half as before, ns/frame",
		"floor", "× floor")
	for _, depth := range []int{10, 20, 50, 100, 200, 500, 1000, 2000} {
		row := []string{thousands(depth)}
		for _, stay := range []int{0, depth / 2} {
			m := newMade(l)
			if err := m.mapped(1, libraryAt); err != nil {
				return "", err
			}
			outer, root := m.calls(stay, libraryAt), m.outermost(libraryAt)
			for range growthFrames / depth {
				m.sampled(1, 1, m.calls(depth-stay-1, libraryAt), outer, root)
			}
			s, err := b.speedOf(m.recording, depth)
			if err != nil {
				return "", err
			}
			row = append(row, number(s.perFrame(s.walk)), number(s.perFrame(s.floor)), number(s.ratio()))
		}
		t.Add(row...)
		b.say("growth: %d frames: %s ns/frame", depth, row[1])
	}
	return t.String(), nil
}

// growProcesses makes samples of many processes, each with the library elsewhere
// and the outer half of its stack as before.
func (b *bench) growProcesses(l *library) (string, error) {
	t := section.NewTable("processes", "µs/sample", "ns/frame", "× the first line")
	var first float64
	for _, n := range []int{10, 50, 100, 200, 500, 1000, 2000} {
		m := newMade(l)
		outer := make([]chain, n)
		at := m.places(n)
		for i := range n {
			if err := m.mapped(uint32(i+1), at[i]); err != nil {
				return "", err
			}
			outer[i] = m.calls(growthDepth/2, at[i])
		}
		for range growthFrames / growthDepth {
			i := m.rand.IntN(n)
			m.sampled(uint32(i+1), uint32(i+1), m.calls(growthDepth/2-1, at[i]), outer[i], m.outermost(at[i]))
		}
		s, err := b.speedOf(m.recording, growthDepth)
		if err != nil {
			return "", err
		}
		if first == 0 {
			first = s.perSample()
		}
		t.Add(thousands(n), number(s.perSample()/1e3), number(s.perFrame(s.walk)), number(s.perSample()/first))
		b.say("growth: %d processes: %.2f µs/sample", n, s.perSample()/1e3)
	}
	return t.String(), nil
}

// growMappings makes samples of one process. Each stack lies in four of its
// mappings.
func (b *bench) growMappings(l *library) (string, error) {
	t := section.NewTable("mappings", "µs/sample", "ns/frame", "× the first line", "µs/mapping")
	var first float64
	for _, n := range []int{10, 100, 1000, 3000, 10_000} {
		m := newMade(l)
		at := m.places(n)
		for _, i := range m.rand.Perm(n) {
			if err := m.mapped(1, at[i]); err != nil {
				return "", err
			}
		}
		for range growthFrames / growthDepth {
			four := []uint64{at[m.rand.IntN(n)], at[m.rand.IntN(n)], at[m.rand.IntN(n)], at[m.rand.IntN(n)]}
			m.sampled(1, 1, m.calls(growthDepth-1, four...), m.outermost(four[0]))
		}
		r := m.recording
		fresh := r.begin()
		var walked, records times
		if err := fresh.session.Record(r.blocks[0].runs[0].records[0]); err != nil { // this opens the file
			return "", err
		}
		if err := fresh.pass(&walked, &records); err != nil {
			return "", err
		}
		s, err := b.speedOf(r, growthDepth)
		if err != nil {
			return "", err
		}
		if first == 0 {
			first = s.perSample()
		}
		t.Add(thousands(n), number(s.perSample()/1e3), number(s.perFrame(s.walk)), number(s.perSample()/first),
			number(micros(records.total())/float64(n)))
		b.say("growth: %d mappings: %.2f µs/sample", n, s.perSample()/1e3)
	}
	return t.String(), nil
}
