package profile

import (
	"fmt"
	"math"

	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/perfring"
)

// commandLines finds out which of the command lines in a recording is that of a process. It may execute several
// programs: it has that of the one with most samples, as it has its name.
type commandLines struct {
	texts   map[commandLineKey]string
	bytes   int // of texts
	lives   map[uint32][]life
	sampled int    // of lives
	leftOut uint64 // command lines for which there was no room
}

type commandLineKey struct {
	pid  uint32
	time uint64
}

// A life is one of the programs that a sampled process executes, in the order of time.
type life struct {
	began   uint64
	samples uint64
}

const (
	mostCommandLines     = 1 << 17
	mostCommandLineBytes = 64 << 20
)

func newCommandLines() *commandLines {
	return &commandLines{texts: make(map[commandLineKey]string), lives: make(map[uint32][]life)}
}

// add takes a record with a command line.
func (c *commandLines) add(rec perfring.Record) {
	line, ok := perfdata.DecodeCommandLine(rec)
	if !ok {
		return
	}
	key := commandLineKey{line.PID, line.Time}
	before, known := c.texts[key]
	if !known && len(c.texts) >= mostCommandLines || c.bytes+len(line.Text)-len(before) > mostCommandLineBytes {
		c.leftOut++
		return
	}
	c.bytes += len(line.Text) - len(before)
	c.texts[key] = line.Text
}

// begin notes that a process begins at a time, or another program in it.
func (c *commandLines) begin(pid uint32, time uint64) {
	lives, sampled := c.lives[pid]
	if !sampled {
		return
	}
	if last := &lives[len(lives)-1]; last.samples == 0 {
		last.began = time
	} else if c.sampled < mostCommandLines {
		c.sampled++
		c.lives[pid] = append(lives, life{began: time})
	}
}

// sample counts a sample.
func (c *commandLines) sample(pid uint32) {
	lives, sampled := c.lives[pid]
	if !sampled {
		if c.sampled >= mostCommandLines {
			return
		}
		c.sampled++
		lives = make([]life, 1)
		c.lives[pid] = lives
	}
	lives[len(lives)-1].samples++
}

// byPID is the command line of each process that has one, nil if none has.
func (c *commandLines) byPID() map[uint32]string {
	var by map[uint32]string
	last := make(map[uint32]uint64) // of the program with most samples, the time of its last one
	spans := make(map[uint32]span)
	for key, text := range c.texts {
		of, known := spans[key.pid]
		if !known {
			of = c.longest(key.pid)
			spans[key.pid] = of
		}
		if key.time < of.from || key.time >= of.until || key.time < last[key.pid] {
			continue
		}
		if by == nil {
			by = make(map[uint32]string)
		}
		by[key.pid], last[key.pid] = text, key.time
	}
	return by
}

// A span is when a program ran.
type span struct{ from, until uint64 }

// longest is the span of the program that a process has most samples of, an empty one if it has none.
func (c *commandLines) longest(pid uint32) (s span) {
	var most uint64
	lives := c.lives[pid]
	for i, l := range lives {
		if l.samples < most || l.samples == 0 {
			continue
		}
		most = l.samples
		s = span{l.began, math.MaxUint64}
		if i+1 < len(lives) {
			s.until = lives[i+1].began
		}
	}
	return s
}

// problem returns what there was no room for, "" for nothing.
func (c *commandLines) problem() string {
	if c.leftOut == 0 {
		return ""
	}
	return fmt.Sprintf("%s left out, as there are too many", human.Plural(c.leftOut, "command line"))
}
