package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A perf map is a file /tmp/perf-PID.map of lines "START SIZE name" with hexadecimal numbers, to which a
// runtime adds a line for each piece of code that it generates (tools/perf/Documentation/jit-interface.txt in
// the kernel's sources). The lines are in the order of writing and may overlap, as a runtime reuses the
// addresses of old code.

// How much of a perf map is read, and of those of all processes.
const (
	maxPerfMap     = 512 << 20
	maxAllPerfMaps = 1 << 30
	// A runtime writes nothing but lines. Where there is none for so long, there are no more: of a sparse file, say.
	maxWithoutLine = 1 << 20
)

var (
	errTooMuchCode = fmt.Errorf("more than %d pieces of code or %d bytes of names, or %d and %d of all "+
		"processes: "+
		"what follows is left out", maxCodes, maxCodeNames, maxAllCodes, maxAllCodeNames)
	errLongMap = fmt.Errorf("more than %d bytes, or %d of all processes: what follows is left out",
		maxPerfMap, maxAllPerfMaps)
	errNoLines = fmt.Errorf("%d bytes without a line: what follows is left out", maxWithoutLine)
)

func (s *Symbolizer) readPerfMap(c *codes, p *writer, path string) {
	file, err := p.open(path)
	if err == nil {
		defer file.Close()
		most := min(maxPerfMap, s.room.perfMaps)
		r := &io.LimitedReader{R: io.NewSectionReader(file, 0, most), N: most}
		if err = c.readPerfMap(r); err == nil && r.N == 0 {
			err = errLongMap
		}
		s.room.perfMaps -= most - r.N
	}
	if err != nil && !missing(err) {
		s.problem("%s: %v", path, err)
	}
}

// readPerfMap reads the lines that are well-formed.
func (c *codes) readPerfMap(r io.Reader) error {
	defer c.sort()
	lines := bufio.NewReaderSize(r, maxName)
	without := 0 // bytes since the last line that says something
	for {
		line, err := lines.ReadSlice('\n')
		addr, size, name, ok := perfMapLine(line)
		if ok && !c.add(addr, size, 0, name) {
			return errTooMuchCode
		}
		if without += len(line); ok {
			without = 0
		}
		for errors.Is(err, bufio.ErrBufferFull) && without <= maxWithoutLine { // skip the rest of a long name
			line, err = lines.ReadSlice('\n')
			without += len(line)
		}
		if without > maxWithoutLine {
			return errNoLines
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// perfMapLine reads one line. Like perf, it takes numbers with 0x, too.
func perfMapLine(line []byte) (addr, size uint64, name []byte, ok bool) {
	start, rest, _ := bytes.Cut(line, []byte{' '})
	length, name, _ := bytes.Cut(rest, []byte{' '})
	if addr, ok = hex(start); ok {
		size, ok = hex(length)
	}
	name = bytes.TrimSpace(name)
	return addr, size, name, ok && len(name) > 0
}

func hex(digits []byte) (uint64, bool) {
	digits = bytes.TrimPrefix(digits, []byte("0x"))
	v, err := strconv.ParseUint(string(digits), 16, 64)
	return v, err == nil
}
