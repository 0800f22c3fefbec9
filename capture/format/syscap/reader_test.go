package syscap

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"unspool/perfring"
)

// captured is a capture as a reader finds it.
type captured struct {
	clock      string
	start, end uint64
	frames     []captureFrame
	files      map[string][]byte
	symbols    int // in __symbols__
}

type captureFrame struct {
	kind uint32
	cpu  int16
	pid  int32
	time uint64
	body []byte
}

// text is the text from an offset of the body on.
func (f *captureFrame) text(at int) string {
	s, _, _ := bytes.Cut(f.body[at:], []byte{0})
	return string(s)
}

// addrs are those of a sample, markers among them.
func (f *captureFrame) addrs() []uint64 {
	var all []uint64
	for i := range int(le.Uint16(f.body)) {
		all = append(all, le.Uint64(f.body[8+8*i:]))
	}
	return all
}

// ofKind returns the frames of a type.
func (c *captured) ofKind(kind uint32) (all []captureFrame) {
	for _, f := range c.frames {
		if f.kind == kind {
			all = append(all, f)
		}
	}
	return all
}

// parse reads a capture and refuses everything that the format does not allow.
func parse(b []byte) (c captured, err error) {
	if len(b) < headerSize || le.Uint32(b) != magic || le.Uint32(b[4:]) != 1|1<<8 {
		return c, fmt.Errorf("header: % x", b[:min(len(b), 8)])
	}
	clock, _, ended := bytes.Cut(b[8:72], []byte{0})
	c = captured{clock: string(clock), start: le.Uint64(b[72:]), end: le.Uint64(b[80:]),
		files: map[string][]byte{}}
	if !ended || bytes.Trim(b[88:headerSize], "\x00") != nil {
		return c, fmt.Errorf("header: time without an end, or something behind it")
	}
	done := map[string]bool{}
	for at := headerSize; at < len(b); {
		if len(b)-at < 24 {
			return c, fmt.Errorf("offset %d: %d bytes are left", at, len(b)-at)
		}
		size := int(le.Uint16(b[at:]))
		if size < 24 || size%8 != 0 || size > len(b)-at {
			return c, fmt.Errorf("offset %d: frame of %d bytes", at, size)
		}
		f := captureFrame{le.Uint32(b[at+16:]), int16(le.Uint16(b[at+2:])), int32(le.Uint32(b[at+4:])),
			le.Uint64(b[at+8:]), b[at+24 : at+size]}
		texts := map[uint32]int{frameMap: 32, frameProcess: 0, frameMark: 72, frameLog: 40, frameMetadata: 40}
		least := map[uint32]int{frameSample: 8, frameFork: 4, frameExit: 0, frameFile: 260}
		n, isText := texts[f.kind]
		if isText {
			n++
		} else if n = least[f.kind]; least[f.kind] == 0 && f.kind != frameExit {
			return c, fmt.Errorf("offset %d: type %d", at, f.kind)
		}
		if len(f.body) < n || isText && f.body[len(f.body)-1] != 0 && f.kind != frameMetadata {
			// Sysprof's own may have no end
			return c, fmt.Errorf("offset %d: type %d of %d bytes, or without an end", at, f.kind, size)
		}
		if isText && f.kind != frameMetadata && !utf8.ValidString(f.text(n-1)) {
			return c, fmt.Errorf("offset %d: %q", at, f.text(n-1))
		}
		if f.time < c.start {
			return c, fmt.Errorf("offset %d: time %d before the start", at, f.time)
		}
		switch f.kind {
		case frameSample:
			if 8+8*int(le.Uint16(f.body)) != len(f.body) {
				return c, fmt.Errorf("offset %d: %d addresses in %d bytes", at, le.Uint16(f.body), len(f.body))
			}
		case frameFile:
			name, size := f.text(4), int(le.Uint16(f.body[2:]))
			if 260+size > len(f.body) || done[name] {
				return c, fmt.Errorf("offset %d: %d bytes of %s, or after its end", at, size, name)
			}
			c.files[name] = append(c.files[name], f.body[260:260+size]...)
			done[name] = le.Uint16(f.body) == 1
		}
		c.frames = append(c.frames, f)
		at += size
	}
	for name := range c.files {
		if !done[name] {
			return c, fmt.Errorf("%s has no end", name)
		}
	}
	file := c.files["__symbols__"]
	for zero := make([]byte, 24); ; c.symbols++ {
		at := c.symbols * symbolSize
		if at+symbolSize >= len(file) {
			if len(file) > 0 {
				return c, fmt.Errorf("__symbols__ has no last element")
			}
			break
		}
		if bytes.Equal(file[at:][:24], zero) {
			break
		}
	}
	return c, nil
}

// mustParse parses a capture that has to be complete.
func mustParse(t testing.TB, b []byte) captured {
	t.Helper()
	c, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// name looks an address up as Sysprof does. For versions up to 44 the end of a range is part of it.
func (c *captured) name(pid int32, addr uint64, inclusive bool) (name, tag string) {
	file := c.files["__symbols__"]
	n := c.symbols
	at := func(i int) (begin, end uint64, of uint32) {
		b := file[i*symbolSize:]
		return le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:])
	}
	i := sort.Search(n, func(i int) bool {
		_, end, of := at(i)
		return of > uint32(pid) || of == uint32(pid) && (end > addr || inclusive && end == addr)
	})
	if i == n {
		return "", ""
	}
	begin, _, of := at(i)
	if of != uint32(pid) || addr < begin {
		return "", ""
	}
	text := func(offset uint32) string {
		if offset == 0 {
			return ""
		}
		s, _, ended := bytes.Cut(file[offset:], []byte{0})
		if !ended {
			return "text without an end"
		}
		return string(s)
	}
	return text(le.Uint32(file[i*symbolSize+20:])), text(le.Uint32(file[i*symbolSize+24:]))
}

// stacks counts the samples by process and the names in their stacks, leaf first, with - for what has none.
func (c *captured) stacks(inclusive bool) map[string]int {
	count := map[string]int{}
	for _, f := range c.ofKind(frameSample) {
		names := []string{fmt.Sprint(f.pid)}
		for _, a := range f.addrs() {
			if a >= perfring.ContextMax {
				continue
			}
			name, _ := c.name(f.pid, a, inclusive)
			names = append(names, name)
		}
		count[strings.Join(names, ";")]++
	}
	return count
}
