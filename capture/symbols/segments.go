package symbols

import (
	"io/fs"

	"unspool/vmas/process"
)

// CodeSegment is an executable segment of an ELF image: Size bytes of its file from Offset on are code at
// the virtual addresses from Addr on.
type CodeSegment struct{ Addr, Offset, Size uint64 }

// Code returns the executable segments of an image in which addresses have been looked up; none if its file
// was not found.
func (im *Image) Code() []CodeSegment {
	if im.table == nil {
		return nil
	}
	var code []CodeSegment
	for _, s := range im.table.loads {
		if s.Exec() && s.Filesz > 0 {
			code = append(code, CodeSegment{s.Vaddr, s.Offset, s.Filesz})
		}
	}
	return code
}

// Open opens the image's file, which is the recorded one as far as build IDs show. Options.Opener opens it.
func (im *Image) Open() (file *process.OpenFile, err error) {
	err = fs.ErrNotExist
	if im.isFile() {
		im.s.Contain(im.Path, "instructions", func() { file, _, err = im.open() })
	}
	return file, err
}
