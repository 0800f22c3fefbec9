package vdso

import (
	"errors"
	"os"
	"sync"

	"unspool/vmas"
)

var own struct {
	sync.Mutex
	image []byte
}

// Own returns the vDSO of this process: all 64-bit processes of a kernel have the same one, so it
// need not be read from the process that is unwound. It must not be changed. A failure, for instance
// because no descriptor was free, is not remembered.
func Own() ([]byte, error) {
	own.Lock()
	defer own.Unlock()
	if own.image != nil {
		return own.image, nil
	}
	image, err := read()
	if err == nil {
		own.image = image
	}
	return image, err
}

func read() ([]byte, error) {
	t := vmas.NewTable("/proc")
	pid := uint32(os.Getpid())
	if _, err := t.Seed(pid); err != nil {
		return nil, err
	}
	for m := range t.Space(pid).Mappings() {
		if m.File.Kind != vmas.VDSO {
			continue
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, err
		}
		defer mem.Close()
		image := make([]byte, m.End-m.Start)
		_, err = mem.ReadAt(image, int64(m.Start))
		return image, err
	}
	return nil, errors.New("[vdso]: not mapped in this process")
}
