package asm

import (
	"io"
	"slices"

	"unspool/dwarfcfi/elf"
)

// A Survey says where functions start in all the code that CFI does not cover. It does not change. The zero
// value means that there is no such code.
type Survey struct{ found *codeMap }

// NewSurvey reads all the code of an image, its symbols and its data: that takes up to some hundred
// milliseconds. No [Code] may have the same functions of covered at that time.
func NewSurvey(r io.ReaderAt, layout *elf.Layout, covered Covered) *Survey {
	return &Survey{New(r, layout, covered).survey()}
}

// chart gives all holes and starts. They are not known, and there are none, as long as the survey is not
// there.
func (c *Code) chart() *codeMap {
	if c.charted.whole {
		return c.charted
	}
	if ask := c.covered.Survey; ask == nil {
		c.charted = c.survey()
	} else {
		s := ask()
		if s == nil {
			return new(codeMap)
		}
		c.charted = &codeMap{whole: true}
		if s.found != nil {
			c.charted = s.found
		}
	}
	c.forget()
	return c.charted
}

// forget drops everything that was read with other starts.
func (c *Code) forget() {
	clear(c.readings)
	c.kept = 0
	c.returns = [deepestCall]answers[returning]{}
}

// survey finds all holes and starts.
func (c *Code) survey() *codeMap {
	m := &codeMap{holes: c.holes(), whole: true}
	if len(m.holes) == 0 {
		return m
	}
	add := func(addr uint64) {
		if len(m.starts) < 2*maxStarts {
			if m.inHole(addr) {
				m.starts = append(m.starts, addr)
			}
		}
	}
	sections := make(map[uint64]bool, len(c.layout.Text))
	for _, r := range c.layout.Text {
		sections[r.Start] = true
		if r.Name == ".init" || r.Name == ".fini" {
			add(r.Start)
		}
	}
	for _, h := range m.holes {
		// What starts a section may be the cold part of a function.
		if !sections[h.Lo] {
			add(c.skipPadding(h))
		}
	}
	m.stops = c.stops()
	add(c.layout.Entry)
	c.symbols(add)
	c.sweep(m, add)
	c.pointers(m, add)
	slices.Sort(m.starts)
	m.starts = slices.Compact(m.starts)
	return m
}
