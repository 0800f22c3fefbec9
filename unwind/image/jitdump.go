package image

import (
	"fmt"
	"path"

	"unspool/unwind/jit"
	"unspool/unwind/jit/jitdump"
	"unspool/vmas"
)

// Dump finds the jitdump among the mappings of a process, nil where there is none. It was opened when the
// process mapped it, like every file; late means that one is not open yet. A forked process has that of its
// parent mapped, and may have its own, too.
func (s *Store) Dump(space *vmas.Space) (file jit.File, late bool) {
	own := fmt.Sprintf("jit-%d.dump", space.PID)
	var found *Image
	for m := range space.Mappings() {
		if m.File.Kind != vmas.Regular || !jitdump.IsName(m.File.Path) {
			continue
		}
		im := s.Lookup(space.PID, m)
		late = late || im != nil && im.err == errLate
		if im == nil || im.source == nil || im.source.file == nil || !s.ownedBy(im.source, space.PID) {
			continue
		}
		if found == nil || path.Base(m.File.Path) == own {
			found = im
		}
	}
	if found == nil {
		return nil, late
	}
	return dumpFile{found, found.source}, late
}

// A dumpFile is the file of a jitdump.
type dumpFile struct {
	image *Image
	*source
}

func (f dumpFile) Path() string { return f.image.Path }

func (f dumpFile) Begin(do func()) jit.Job {
	j := newJob(do, 0)
	j.concerns(f.source)
	return func() bool { return f.image.store.await(j, f.image.Path, &f.image.late) }
}

// ownedBy reports whether a file belongs to the user of a process or to root. If the process is gone, any owner
// will do. A recording does not tell whose process it was, so its files must be this user's.
func (s *Store) ownedBy(f *source, pid uint32) bool {
	process := s.find.owner(pid)
	return f.owner == 0 || process == nobody || f.owner == process
}
