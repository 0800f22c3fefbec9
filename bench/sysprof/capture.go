package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var le = binary.LittleEndian

// A capture is what is looked at in a Sysprof capture (sysprof-capture-types.h).
type capture struct {
	samples []sample
	comms   map[int32]string // the last one of each process
	maps    map[int32][]mapping
	lost    int // by messages of Sysprof's sampler
}

type sample struct {
	pid  int32
	time uint64
	root uint64 // the outermost address of the user part, 0 without one
}

type mapping struct {
	start, end, offset uint64
	name               string
}

const (
	headerSize = 256
	frameHead  = 24

	frameSample, frameMap, frameProcess, frameLog = 2, 3, 4, 12

	contextUser = math.MaxUint64 - 511 // PERF_CONTEXT_USER
)

var lostMessage = regexp.MustCompile(`^Lost (\d+) samples`)

// readCapture reads a capture. Frames of other kinds are passed over.
func readCapture(path string) (*capture, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) < headerSize || le.Uint32(b) != 0xFDCA975E {
		return nil, fmt.Errorf("%s: no capture", path)
	}
	c := &capture{comms: make(map[int32]string), maps: make(map[int32][]mapping)}
	for b = b[headerSize:]; len(b) >= frameHead; {
		size := int(le.Uint16(b))
		if size < frameHead || size > len(b) {
			return nil, fmt.Errorf("%s: frame of %d bytes, %d are left", path, size, len(b))
		}
		c.add(le.Uint32(b[16:]), int32(le.Uint32(b[4:])), le.Uint64(b[8:]), b[frameHead:size])
		b = b[(size+7)&^7:]
	}
	return c, nil
}

func (c *capture) add(kind uint32, pid int32, time uint64, body []byte) {
	text := func(at int) string {
		s, _, _ := bytes.Cut(body[min(at, len(body)):], []byte{0})
		return string(s)
	}
	switch kind {
	case frameProcess:
		c.comms[pid] = text(0)
	case frameMap:
		if len(body) > 32 {
			m := mapping{le.Uint64(body), le.Uint64(body[8:]), le.Uint64(body[16:]), text(32)}
			c.maps[pid] = append(c.maps[pid], m)
		}
	case frameLog:
		if m := lostMessage.FindStringSubmatch(text(40)); m != nil {
			n, _ := strconv.Atoi(m[1])
			c.lost += n
		}
	case frameSample:
		s := sample{pid: pid, time: time}
		user := false
		for i := 8; i+8 <= len(body); i += 8 {
			switch addr := le.Uint64(body[i:]); {
			case addr == contextUser:
				user = true
			case user || addr < 1<<63: // theirs has no marker where it has replaced it
				s.root = addr
			}
		}
		c.samples = append(c.samples, s)
	}
}

// reaches counts the samples with user code of some programs between two times, and how many of these stacks
// end in a file's entry point: _start, of the program or of the dynamic linker. The files are below dir.
func (c *capture) reaches(dir string, programs []string, from, to uint64) (user, complete int) {
	entries := make(map[string]uint64)
	own := make(map[int32]bool)
	for _, s := range c.samples {
		if s.time < from || s.time >= to || s.root == 0 || !slices.Contains(programs, c.comms[s.pid]) {
			continue
		}
		if _, known := own[s.pid]; !known {
			own[s.pid] = c.isBelow(dir, s.pid)
		}
		if !own[s.pid] {
			continue
		}
		user++
		for _, m := range c.maps[s.pid] {
			if s.root < m.start || s.root >= m.end {
				continue
			}
			entry, known := entries[m.name]
			if !known {
				entry = entryOffset(filepath.Join(dir, m.name))
				entries[m.name] = entry
			}
			if at := s.root - m.start + m.offset; entry != 0 && at >= entry && at < entry+entrySize {
				complete++
				break
			}
		}
	}
	return user, complete
}

// isBelow reports whether a process runs a program of the root at dir, and not one of the same name outside of it.
func (c *capture) isBelow(dir string, pid int32) bool {
	return slices.ContainsFunc(c.maps[pid], func(m mapping) bool {
		if !strings.HasPrefix(filepath.Base(m.name), c.comms[pid]) {
			return false
		}
		_, err := os.Stat(filepath.Join(dir, m.name))
		return err == nil
	})
}

// entrySize is how long _start is at most.
const entrySize = 64

// entryOffset is where in a file its entry point is, 0 for none.
func entryOffset(path string) uint64 {
	f, err := elf.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= f.Entry && f.Entry < p.Vaddr+p.Filesz {
			return f.Entry - p.Vaddr + p.Off
		}
	}
	return 0
}
