package image

import (
	"os"
	"slices"
)

// Names are looked up after a recording, when files may be gone that programs were run from: every 'go test'
// removes its own. So the store can keep the files of images that frames were in.

// mostKept is how many files are kept of which no process maps any any more, and how many files [Store.Files]
// returns; half of them may be of one user's processes.
const mostKept = 1024

// A keeping holds the files of images that are dropped, of which the oldest make room for new ones. They stay among
// the descriptors: whoever maps many files has old ones closed.
type keeping struct {
	most    int64         // bytes: a file that is removed takes its room on the disk as long as it is open
	sources []*keptSource // the oldest first
	bytes   int64
	known   map[keptFile]bool
	of      map[uint32]int // by user of the processes
}

// A keptSource is the file of an image that was dropped.
type keptSource struct {
	keptFile
	*source
	name string // as the kernel gave it
}

// A keptFile identifies the contents of a file. One that is mapped again is another image.
type keptFile struct {
	key   string
	inode inode
}

// keep takes over the file of an image that is dropped, if frames were in it.
func (k *keeping) keep(im *Image) {
	if k == nil || !im.hit || !im.source.isHandedOut() || im.source.size > k.most {
		return
	}
	id := keptFile{key: im.key}
	if im.key == "" {
		id.inode = im.inode
	}
	if k.known[id] {
		return
	}
	uid := im.source.file.uid
	if k.of[uid] == mostKept/2 {
		k.drop(slices.IndexFunc(k.sources, func(old *keptSource) bool { return old.file.uid == uid }))
	}
	for len(k.sources) == mostKept || k.bytes+im.source.size > k.most {
		k.drop(0)
	}
	k.known[id] = true
	k.of[uid]++
	k.bytes += im.source.size
	k.sources = append(k.sources, &keptSource{id, im.source, im.name})
	im.source = nil
}

// drop closes one of the files.
func (k *keeping) drop(i int) {
	old := k.sources[i]
	k.sources = slices.Delete(k.sources, i, i+1)
	k.bytes -= old.size
	k.of[old.file.uid]--
	delete(k.known, old.keptFile)
	old.close()
}

// isHandedOut reports whether others can read the file by its descriptor.
func (s *source) isHandedOut() bool { return s != nil && s.file != nil && s.by == nil }

// A SampledFile is an open file in which frames were.
type SampledFile struct {
	*os.File
	Name    string // as the kernel gave it
	BuildID []byte // nil if it has none
	UID     uint32 // of the process that was the first to map it
}

// Files returns the files of images that frames were in, as far as they are open: first of those that no
// process maps any more, if they are kept. The caller closes them.
func (s *Store) Files() (files []SampledFile) {
	if s.kept != nil {
		for _, k := range s.kept.sources {
			files = appendFile(files, k.source, k.name)
		}
	}
	for _, im := range s.byKey {
		if im.hit {
			files = appendFile(files, im.source, im.name)
		}
	}
	for _, im := range s.byInode {
		if im.hit {
			files = appendFile(files, im.source, im.name)
		}
	}
	return files
}

// ForgetKept closes the files that no process maps any more.
func (s *Store) ForgetKept() {
	for s.kept != nil && len(s.kept.sources) > 0 {
		s.kept.drop(len(s.kept.sources) - 1)
	}
}

func appendFile(files []SampledFile, s *source, name string) []SampledFile {
	if len(files) == mostKept || !s.isHandedOut() {
		return files
	}
	if file, err := s.again(); err == nil {
		files = append(files, SampledFile{file, name, s.buildID, s.file.uid})
	}
	return files
}
