package symbols

import (
	"bytes"

	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
)

// loadVDSO reads the functions of the vDSO from our own memory, as the kernel gives all processes of one architecture the same,
// or what perf's cache has of another kernel's.
func (s *Symbolizer) loadVDSO(im *Image) *Table {
	other := s.otherKernel()
	if other == "" {
		t, err := ownVDSO(im.BuildID)
		if err == nil {
			return t
		}
		other = err.Error()
	}
	if file, err := s.cached(im.BuildID, "vdso"); err == nil {
		defer file.Close()
		if f, err := parseFile(file); err == nil && fileid.SameBuild(f.BuildID(), im.BuildID) {
			t, _ := f.table(nil)
			return t
		}
	}
	s.problem("[vdso]: no names: %s", other)
	return nil
}

func ownVDSO(recorded []byte) (*Table, error) {
	image, err := vdso.Own()
	if err != nil {
		return nil, err
	}
	return readChecked(bytes.NewReader(image), int64(len(image)), recorded)
}
