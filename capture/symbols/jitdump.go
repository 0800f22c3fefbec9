package symbols

import (
	"errors"
	"io"
	"path"
	"strings"

	"unspool/unwind/jit/jitdump"
)

// IsJitdump reports whether a mapped file has the name of a jitdump.
func IsJitdump(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump")
}

func (s *Symbolizer) readJitdump(g *Generated, p *writer, path string) {
	file, err := p.open(path)
	if err == nil {
		defer file.Close()
		err = g.dump.readJitdump(file)
	}
	if err != nil {
		g.Refused = path
		s.problem("%s: %v", path, err)
	}
}

// readJitdump reads the names of a jitdump up to its first incomplete record.
func (c *codes) readJitdump(file io.ReaderAt) error {
	defer c.sort()
	d, err := jitdump.NewReader(file)
	at := make(map[uint64]int) // start of code → its index
	var r jitdump.Entry
	for err == nil {
		if err = d.Next(&r); err != nil {
			break
		}
		if d.Flags&jitdump.ArchTime != 0 {
			r.Time = 0 // not the samples' clock: only the order of writing counts
		}
		name, last := r.Name, len(c.list)
		if r.Kind == jitdump.CodeMove {
			i, ok := at[r.From]
			if !ok {
				continue
			}
			delete(at, r.From)
			old := c.list[i]
			name = c.names[old.name:][:old.nameSize]
			// The code is not at its old place any more, except where the new place overlaps the old one.
			if !c.add(old.addr, uint64(old.size), r.Time, nil) {
				return errTooMuchCode
			}
			last = len(c.list)
		}
		if !c.add(r.Addr, r.Size, r.Time, name) {
			return errTooMuchCode
		}
		if len(c.list) > last {
			at[r.Addr] = last
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
