package elf

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkReadLayout is what opening an image costs before its CFI is read.
func BenchmarkReadLayout(b *testing.B) {
	for _, pattern := range []string{libc, "/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1"} {
		found, _ := filepath.Glob(pattern)
		if len(found) == 0 {
			continue
		}
		b.Run(pattern, func(b *testing.B) {
			f, err := os.Open(found[len(found)-1])
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			info, _ := f.Stat()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ReadLayout(f, info.Size()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
