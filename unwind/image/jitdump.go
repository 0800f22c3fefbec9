package image

import (
	"fmt"
	"os"
	"path"
	"syscall"

	"unspool/unwind/jit/jitdump"
	"unspool/vmas"
)

// Dump finds the jitdump among the mappings of a process: the open file, nil where there is none, and
// its path. It was opened when the process mapped it, like every file, and belongs to the store. A
// process that was forked has that of its parent, and may have its own, too.
func (s *Store) Dump(space *vmas.Space) (file *os.File, name string) {
	own := fmt.Sprintf("jit-%d.dump", space.PID)
	maps := space.Mappings()
	for i := range maps {
		m := &maps[i]
		if m.File.Kind != vmas.Regular || !jitdump.IsName(m.File.Path) {
			continue
		}
		im := s.Lookup(space.PID, m)
		if im == nil || im.file == nil || !s.ownedBy(im.file, space.PID) {
			continue
		}
		if file == nil || path.Base(m.File.Path) == own {
			file, name = im.file, im.Path
		}
	}
	return file, name
}

// ownedBy says whether an open file belongs to the user of a process or to
// root. Nothing is held against the file when the process is gone; of a recording,
// nobody knows whose process it was, and the file must be this user's.
func (s *Store) ownedBy(f *os.File, pid uint32) bool {
	owner := func(info os.FileInfo, err error) (uint32, bool) {
		if err != nil {
			return 0, false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, false
		}
		return st.Uid, true
	}
	file, ok := owner(f.Stat())
	if !ok {
		return false
	}
	if s.offline != nil {
		return file == 0 || file == uint32(os.Geteuid())
	}
	process, ok := owner(os.Stat(fmt.Sprintf("%s/%d", s.proc, pid)))
	return file == 0 || !ok || file == process
}
