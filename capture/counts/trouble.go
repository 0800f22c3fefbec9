package counts

import (
	"cmp"
	"slices"

	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/vmas"
)

// Trouble is where stacks ended before their root, which files could not be used, and what memory was not read.
type Trouble struct {
	places map[place]uint64
	files  map[string]error
	memory []error // each once

	Generated *GeneratedStats // nil where nothing is known of it
}

type place struct {
	reason unwind.Reason
	path   string
}

// maxTrouble bounds how many places and files are remembered.
const maxTrouble = 1024

// NewTrouble returns one in which nothing is noted.
func NewTrouble() *Trouble {
	return &Trouble{places: make(map[place]uint64), files: make(map[string]error)}
}

// Add adds what another session has noted.
func (t *Trouble) Add(other *Trouble) {
	for p, n := range other.places {
		t.places[p] += n
	}
	for path, err := range other.files {
		t.NoteFile(path, err)
	}
	for _, err := range other.memory {
		t.NoteMemory(err)
	}
}

// NoteEnd notes a stack that ended before its root, at a path as in [WalkEnd].
func (t *Trouble) NoteEnd(why unwind.Reason, path string) {
	if why == unwind.Root {
		return
	}
	p := place{why, path}
	if _, ok := t.places[p]; ok || len(t.places) < maxTrouble {
		t.places[p]++
	}
}

// GeneratedCode stands for the path of code that was generated at run time. Its memory has several names: it
// may have no file, be shared with another process (/dev/zero), or be a file without a path (memfd).
const GeneratedCode = "//anon"

// PathOf gives the path of the code in a mapping. A file that a process maps for itself has had its code
// before, even if it is no ELF file: Windows' programs, and images of Lisp, are none.
func PathOf(m *vmas.Mapping) string {
	switch m.File.Kind {
	case vmas.Anonymous, vmas.Shared, vmas.Heap, vmas.Stack:
		return GeneratedCode
	case vmas.Regular:
		if m.Flags&vmas.FlagPrivate != 0 {
			return m.File.Path
		}
	}
	if im, ok := m.File.Image.(*image.Image); ok && im.IsGenerated() {
		return GeneratedCode
	}
	return m.File.Path
}

// NoteFile notes why a mapped file could not be used.
func (t *Trouble) NoteFile(path string, err error) {
	if _, ok := t.files[path]; !ok && len(t.files) < maxTrouble {
		t.files[path] = err
	}
}

// NoteMemory notes why memory of processes is not read. The same error is kept once.
func (t *Trouble) NoteMemory(err error) {
	if !slices.Contains(t.memory, err) {
		t.memory = append(t.memory, err)
	}
}

// A WalkEnd is a file in which walks ended for one reason. Path is empty if the sampled PC was in no mapping,
// "//anon" for code that was generated at run time, and DeniedPlace or OutsidePlace for processes whose
// mappings are not known.
type WalkEnd struct {
	Path    string
	Samples uint64
}

// Places of samples in processes whose mappings are not known.
const (
	DeniedPlace  = "//denied"  // which may not be read
	OutsidePlace = "//outside" // outside of the recorded PID namespace
)

// Places gives the files in which walks ended for a reason, most samples
// first.
func (t *Trouble) Places(reason unwind.Reason) []WalkEnd {
	var ps []WalkEnd
	for p, n := range t.places {
		if p.reason == reason {
			ps = append(ps, WalkEnd{p.path, n})
		}
	}
	slices.SortFunc(ps, func(a, b WalkEnd) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Path, b.Path))
	})
	return ps
}

// File is why a mapped file could not be used, nil when it could.
func (t *Trouble) File(path string) error { return t.files[path] }
