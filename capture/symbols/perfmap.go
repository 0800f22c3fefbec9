package symbols

import (
	"fmt"
	"io"

	"unspool/unwind/jit/perfmap"
)

// How much of a perf map is read, and of those of all processes.
const (
	maxPerfMap     = 512 << 20
	maxAllPerfMaps = 1 << 30
)

var (
	errTooMuchCode = fmt.Errorf("more than %d pieces of code or %d bytes of names, or %d and %d of all "+
		"processes: "+
		"what follows is left out", maxCodes, maxCodeNames, maxAllCodes, maxAllCodeNames)
	errLongMap = fmt.Errorf("more than %d bytes, or %d of all processes: what follows is left out",
		maxPerfMap, maxAllPerfMaps)
)

// readPerfMap reads the perf map at a path, which may not be there.
func (s *Symbolizer) readPerfMap(g *Generated, p *writer, path string) {
	file, err := p.open(path)
	if err == nil {
		defer file.Close()
		err = s.readWithin(&g.perfMap, io.NewSectionReader(file, 0, maxPerfMap))
	}
	if err != nil && !missing(err) {
		g.Refused = path
		s.problem("%s: %v", path, err)
	}
}

// readKept reads the perf map that the recording has kept.
func (s *Symbolizer) readKept(g *Generated, path string, r io.Reader) {
	if err := s.readWithin(&g.kept, r); err != nil {
		s.problem("%s, as the recording has kept it: %v", path, err)
	}
}

// readWithin reads a perf map as far as there is room for.
func (s *Symbolizer) readWithin(c *codes, from io.Reader) error {
	most := min(maxPerfMap, s.room.perfMaps)
	r := &io.LimitedReader{R: from, N: most}
	err := c.readPerfMap(r)
	if err == nil && r.N == 0 {
		err = errLongMap
	}
	s.room.perfMaps -= most - r.N
	return err
}

// readPerfMap reads the lines that are well-formed.
func (c *codes) readPerfMap(r io.Reader) error {
	defer c.sort()
	return perfmap.Read(r, func(addr, size uint64, name []byte) error {
		if !c.add(addr, size, 0, name) {
			return errTooMuchCode
		}
		return nil
	})
}
