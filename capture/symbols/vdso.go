package symbols

import (
	"bytes"

	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
)

// loadVDSO reads the functions of the vDSO from the memory of this process, as the kernel gives all processes
// of one architecture the same vDSO; or, for another kernel, from perf's cache.
func (s *Symbolizer) loadVDSO(im *Image) *Table {
	other := s.otherKernel()
	if other == "" {
		t, err := ownVDSO(vdso.Own, im.BuildID)
		if err != nil && len(im.BuildID) > 0 { // the image may be the vDSO of 32-bit processes
			if t, err := ownVDSO(vdso.Own32, im.BuildID); err == nil {
				return t
			}
		}
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

func ownVDSO(own func() ([]byte, error), recorded []byte) (*Table, error) {
	image, err := own()
	if err != nil {
		return nil, err
	}
	return readChecked(bytes.NewReader(image), int64(len(image)), recorded)
}
