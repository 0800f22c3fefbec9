package doctor

import (
	"os"
	"path/filepath"
	"strconv"
)

// refusals are how many of the processes that run cannot be looked into.
type refusals struct {
	all, maps, mem int
	files          bool // what this process itself has mapped cannot be opened
}

// look tries to read what the processes that run have mapped, and to open their memory, of which nothing is
// read.
func (m *Environment) look() (s refusals) {
	entries, err := os.ReadDir(m.Proc)
	if err != nil {
		return s
	}
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil {
			continue
		}
		s.all++
		f, err := os.Open(filepath.Join(m.Proc, e.Name(), "maps"))
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			f.Close()
		}
		if isPermission(err) {
			s.maps++
		}
		if f, err = os.Open(filepath.Join(m.Proc, e.Name(), "mem")); err == nil {
			f.Close()
		} else if isPermission(err) {
			s.mem++
		}
	}
	s.files = isPermission(m.openMapped())
	return s
}

// openMapped tries to open a file that this process has mapped.
func (m *Environment) openMapped() error {
	folder := filepath.Join(m.Proc, "self/map_files")
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		return err
	}
	f, err := os.Open(filepath.Join(folder, entries[0].Name()))
	if err != nil {
		return err
	}
	return f.Close()
}
