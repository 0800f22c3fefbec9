package symbols

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/fileid"
	"unspool/vmas/process"
)

// keptFiles are Options.Files: first those without a build ID, which are looked for by their inode. That
// takes long for each file that is another one.
type keptFiles []keptFile

type keptFile struct {
	*process.OpenFile
	buildID []byte // nil if it has none
}

// keptFiles looks at the files, when the first one is needed.
func (s *Symbolizer) keptFiles() keptFiles {
	if s.kept != nil {
		return s.kept
	}
	s.kept = keptFiles{}
	var identified keptFiles
	for _, open := range s.options.Files {
		file := &process.OpenFile{File: open}
		f, err := parseFile(file)
		switch {
		case err != nil:
		case len(f.BuildID()) == 0:
			s.kept = append(s.kept, keptFile{file, nil})
		default:
			identified = append(identified, keptFile{file, f.BuildID()})
		}
	}
	s.kept = append(s.kept, identified...)
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

// find returns the file of an image, by its build ID or else its inode; nil if it is not there. A file may
// have a build ID that was not recorded, as it was not read yet when it was mapped.
func (k keptFiles) find(im *Image) *process.OpenFile {
	for _, file := range k {
		if len(im.BuildID) > 0 && fileid.SameBuild(file.buildID, im.BuildID) ||
			len(im.BuildID) == 0 && fileid.Check(file.OpenFile, &im.inode) == nil {
			return file.OpenFile
		}
	}
	return nil
}
