package symbols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
)

const (
	atNull        = 0  // AT_NULL ends the auxiliary vector (linux/auxvec.h)
	atSysinfoEHDR = 33 // AT_SYSINFO_EHDR: where the vDSO's ELF header is
)

// maxVDSO bounds the vDSO image; today's have two to four pages.
const maxVDSO = 64 << 10

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
		if f, err := parseFile(file); err == nil && sameBuildID(f.BuildID(), im.BuildID) {
			t, _ := f.table(nil)
			return t
		}
	}
	s.problem("[vdso]: no names: %s", other)
	return nil
}

func ownVDSO(recorded []byte) (*Table, error) {
	auxv, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return nil, err
	}
	var addr uint64
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		tag := binary.NativeEndian.Uint64(auxv)
		if tag == atNull {
			break
		}
		if tag == atSysinfoEHDR {
			addr = binary.NativeEndian.Uint64(auxv[8:])
		}
	}
	if addr == 0 {
		return nil, errors.New("/proc/self/auxv: this kernel has no vDSO")
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, 0, maxVDSO)
	const page = 4096
	for len(image) < maxVDSO { // up to the end of the mapping, where reads fail
		n, err := mem.ReadAt(image[len(image):len(image)+page], int64(addr)+int64(len(image)))
		image = image[:len(image)+n]
		if err != nil {
			break
		}
	}
	return readChecked(bytes.NewReader(image), int64(len(image)), recorded)
}
