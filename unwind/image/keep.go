package image

import "os"

// Names are looked up after a recording, when files may be gone that programs were run from: every 'go test'
// removes its own. So the store can keep the files of images that frames were in.

// mostKept is how many files are kept of which no process maps any any more, and how many files [Store.Files]
// returns; half of them may be of one user's processes.
const mostKept = 1024

// A keeping holds the files of images that are dropped. They stay among the descriptors: whoever maps many
// files has old ones closed.
type keeping struct {
	sources []*source
	known   map[keptFile]bool
	of      map[uint32]int // by user of the processes
}

// A keptFile identifies the contents of a file. One that is mapped again is another image.
type keptFile struct {
	key   string
	inode inode
}

// keep takes over the file of an image that is dropped, if frames were in it.
func (k *keeping) keep(im *Image) {
	if k == nil || !im.hit || !im.source.isHandedOut() {
		return
	}
	id := keptFile{key: im.key}
	if im.key == "" {
		id.inode = im.inode
	}
	uid := im.source.file.uid
	if k.known[id] || len(k.sources) == mostKept || k.of[uid] == mostKept/2 {
		return
	}
	k.known[id] = true
	k.of[uid]++
	k.sources = append(k.sources, im.source)
	im.source = nil
}

// isHandedOut says whether others can read the file by its descriptor.
func (s *source) isHandedOut() bool { return s != nil && s.file != nil && s.by == nil }

// Files returns the files of images that frames were in, as far as they are open: first of those that no
// process maps any more, if they are kept. The caller closes them.
func (s *Store) Files() (files []*os.File) {
	if s.kept != nil {
		for _, src := range s.kept.sources {
			files = appendFile(files, src)
		}
	}
	for _, im := range s.byKey {
		if im.hit {
			files = appendFile(files, im.source)
		}
	}
	for _, im := range s.byInode {
		if im.hit {
			files = appendFile(files, im.source)
		}
	}
	return files
}

func appendFile(files []*os.File, s *source) []*os.File {
	if len(files) == mostKept || !s.isHandedOut() {
		return files
	}
	if file, err := s.again(); err == nil {
		files = append(files, file)
	}
	return files
}
