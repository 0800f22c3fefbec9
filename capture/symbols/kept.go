package symbols

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/fileid"
	"unspool/vmas/process"
)

// keptFiles are Options.Files.
type keptFiles struct {
	byBuild map[string]*process.OpenFile // by build ID
	others  []*process.OpenFile          // those without one
}

// keptFiles looks at the files, when the first one is needed.
func (s *Symbolizer) keptFiles() *keptFiles {
	if s.kept != nil {
		return s.kept
	}
	s.kept = &keptFiles{byBuild: make(map[string]*process.OpenFile)}
	for _, open := range s.options.Files {
		file := &process.OpenFile{File: open}
		f, err := parseFile(file)
		if err != nil {
			continue
		}
		if id := f.BuildID(); len(id) > 0 {
			s.kept.byBuild[string(id)] = file
		} else {
			s.kept.others = append(s.kept.others, file)
		}
	}
	return s.kept
}

// openKept is open for a file that was open when the recording ended.
func (im *Image) openKept() (*process.OpenFile, *elfFile, error) {
	if len(im.s.options.Files) == 0 {
		return nil, nil, fs.ErrNotExist
	}
	kept := im.s.keptFiles().find(im)
	if kept == nil {
		return nil, nil, fs.ErrNotExist
	}
	if len(im.BuildID) == 0 {
		if err := im.s.checkAge(kept); err != nil {
			return nil, nil, err
		}
	}
	fd, err := unix.FcntlInt(kept.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := &process.OpenFile{File: os.NewFile(uintptr(fd), im.Path)}
	f, err := parseFile(file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, f, nil
}

// find returns the file of an image, by its build ID or else its inode; nil if it is not there.
func (k *keptFiles) find(im *Image) *process.OpenFile {
	if len(im.BuildID) > 0 {
		for id, file := range k.byBuild {
			if fileid.SameBuild([]byte(id), im.BuildID) {
				return file
			}
		}
		return nil
	}
	for _, file := range k.others {
		if fileid.Check(file, &im.inode) == nil {
			return file
		}
	}
	return nil
}
