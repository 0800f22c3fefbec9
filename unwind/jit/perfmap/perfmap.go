// Package perfmap reads perf maps: files /tmp/perf-PID.map of lines "START SIZE name" with hexadecimal numbers, to
// which a runtime adds a line for each piece of code that it generates (tools/perf/Documentation/jit-interface.txt in
// the kernel's sources). The lines are in the order of writing and may overlap, as a runtime reuses the addresses of
// old code.
//
// What writes them is not trusted: lines of another form are skipped, and a file without lines is not read to its end.
package perfmap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Path is where a process writes its perf map, in its own root and with the PID that it sees.
func Path(pid uint32) string { return fmt.Sprintf("/tmp/perf-%d.map", pid) }

const (
	// maxLine is how much of a line is read: the longest C++ names of real programs are a few times 10 KiB.
	maxLine = 64 << 10
	// A runtime writes nothing but lines. Where there is none for so long, there are no more: of a sparse file, say.
	maxWithoutLine = 1 << 20
)

// ErrNoLines is about a file in which there is no line for long.
var ErrNoLines = fmt.Errorf("%d bytes without a line: what follows is left out", maxWithoutLine)

// Read calls add for each line that is well-formed, until that returns an error, which it returns. The name is valid
// during the call. Of a line that is too long, the beginning counts.
func Read(r io.Reader, add func(addr, size uint64, name []byte) error) error {
	lines := bufio.NewReaderSize(r, maxLine)
	without := 0 // bytes since the last line that says something
	for {
		line, err := lines.ReadSlice('\n')
		addr, size, name, ok := parse(line)
		if ok {
			if err := add(addr, size, name); err != nil {
				return err
			}
		}
		if without += len(line); ok {
			without = 0
		}
		for errors.Is(err, bufio.ErrBufferFull) && without <= maxWithoutLine { // skip the rest of a long name
			line, err = lines.ReadSlice('\n')
			without += len(line)
		}
		if without > maxWithoutLine {
			return ErrNoLines
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// parse reads one line. Like perf, it takes numbers with 0x, too.
func parse(line []byte) (addr, size uint64, name []byte, ok bool) {
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

// Append appends a line.
func Append(b []byte, addr, size uint64, name []byte) []byte {
	b = append(strconv.AppendUint(b, addr, 16), ' ')
	b = append(strconv.AppendUint(b, size, 16), ' ')
	return append(append(b, name...), '\n')
}
