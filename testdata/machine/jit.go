package machine

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// generatedFiles makes code that processes generate. It is in no file; what there is here is like one, with addresses
// from the beginning of its mapping on. Half of it has frame pointers, all of which is known to be found.
func generatedFiles(r *rand.Rand) (all []*file) {
	for i := range 4 {
		f := &file{path: "//anon", generated: true}
		if f.framed = i%2 == 0; f.framed {
			f.image = newImage(r, 0, func() kind { return byBP }, false)
		} else {
			f.image = newImage(r, 0, func() kind { return kind(r.IntN(int(byR13))) }, false)
		}
		all = append(all, f)
	}
	return all
}

// generate has a process generate code, in memory that it maps for that.
func (m *Machine) generate(r *rand.Rand, t *task, c *cpu) {
	if !m.plan.has("jit") && !m.plan.has("rejit") || r.IntN(2) == 0 {
		return
	}
	if m.plan.has("jit") {
		m.Reached["jit"]++
	}
	m.mapFile(r, t, m.someGenerated(r), c, t.pid)
}

func (m *Machine) someGenerated(r *rand.Rand) *file {
	for {
		if f := m.generated[r.IntN(len(m.generated))]; f.framed || m.plan.has("rejit") {
			return f
		}
	}
}

// regenerate puts other code into the same memory, if none of it is on a stack. Nothing tells of that.
func (m *Machine) regenerate(r *rand.Rand, t *task) {
	for i, o := range t.maps {
		if o.file.generated && !t.isUsed(o) && m.happens(r, "rejit") {
			t.maps[i] = &mapping{o.start, m.someGenerated(r)}
			t.program.note(m, t.maps[i])
		}
	}
}

// ReadMemory is for [process.Memory]. Only generated code is there.
func (a access) ReadMemory(pid uint32, buf []byte, addr uint64) int {
	p, err := a.wait(a.ask("memory", pid), pid, answer)
	if err != nil {
		return 0
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	for _, m := range p.maps {
		if m.file.generated && addr-m.start < sizeOf {
			return copy(buf, m.file.image.bytes[addr-m.start:])
		}
	}
	return 0
}

// OpenPerfMap is for [process.FileAccess]. The map has what the process has generated so far.
func (a access) OpenPerfMap(pid, number uint32) (*os.File, error) {
	p, err := a.wait(a.ask("map", pid), pid, answer)
	if err != nil || pid != number {
		return nil, fs.ErrNotExist
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	var text []byte
	for _, m := range p.maps {
		if !m.file.generated {
			continue
		}
		for _, f := range m.file.image.functions {
			text = fmt.Appendf(text, "%x %x generated-%x\n", m.start+f.start, f.end-f.start, f.start)
		}
	}
	if text == nil {
		return nil, fs.ErrNotExist
	}
	fd, err := unix.MemfdCreate("map", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "map")
	_, err = file.Write(text)
	return file, err
}
