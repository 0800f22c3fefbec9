package inputs

import (
	"bytes"
	"os"
	"path/filepath"
)

// Files are the contents of at most n files of this machine that the patterns match, for seeds that are real.
// A file larger than size bytes is left out. There are none unless Total asks for inputs.
func Files(n, size int, patterns ...string) [][]byte {
	return some(n, patterns, func(b []byte) []byte {
		if len(b) > size {
			return nil
		}
		return b
	})
}

// Lines are the same, but of a larger file the lines in the middle that make size bytes.
func Lines(n, size int, patterns ...string) [][]byte {
	return some(n, patterns, func(b []byte) []byte {
		if len(b) <= size {
			return b
		}
		b = b[len(b)/2-size/2:][:size]
		return b[bytes.IndexByte(b, '\n')+1:]
	})
}

// some are n files of all, equally far apart.
func some(n int, patterns []string, part func(b []byte) []byte) [][]byte {
	if Total() == 0 {
		return nil
	}
	var all [][]byte
	for _, pattern := range patterns {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > 64<<20 {
				continue
			}
			b, err := os.ReadFile(name)
			if err != nil {
				continue
			}
			if b = part(b); len(b) > 0 {
				all = append(all, b)
			}
		}
	}
	if len(all) <= n {
		return all
	}
	var some [][]byte
	for i := range n {
		some = append(some, all[i*len(all)/n])
	}
	return some
}
