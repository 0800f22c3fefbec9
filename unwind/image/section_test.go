package image

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi"
)

// TestCompressedDebugFrame reads rows of an image whose own .debug_frame is compressed, as in Go programs: it
// is inflated for the first row. One that cannot be inflated is reported once, and the rest of the image is
// used.
func TestCompressedDebugFrame(t *testing.T) {
	for _, compress := range []string{"zlib", "zstd"} {
		for _, broken := range []bool{false, true} {
			whole, _, debug := splitProgram(t, "none", compress)
			packed := filepath.Join(t.TempDir(), "whole.z")
			run(t, "", "objcopy", "--compress-debug-sections="+compress, whole, packed)
			if broken {
				breakSection(t, packed)
			}
			space, images := mappedAt(t, packed, 0x400000)
			failed := 0
			images.hooks.Failed = func(_ string, err error) { failed++ }
			m := firstMapping(space)
			im := images.Lookup(1, m)
			if err := im.Parse(); err != nil || len(im.lazy) == 0 || im.lazy[0].missing == 0 {
				t.Fatalf("%s: %v, or inflated before its time", compress, err)
			}
			rows, missing := 0, 0
			for fde := range openDebugFrame(t, debug).FDEs() {
				off, _ := im.offset(fde.Start)
				var row dwarfcfi.Row
				if err := im.Row(m, m.Start+off, &row); err == nil {
					rows++
				} else {
					missing++
				}
				im.Rule(m, m.Start+off)
			}
			var row dwarfcfi.Row
			off, _ := im.offset(im.entry)
			if err := im.Row(m, m.Start+off, &row); err != nil {
				t.Errorf("%s: _start: %v", compress, err)
			}
			if broken && (rows > 0 || failed != 1) || !broken && (missing > 0 || rows < 3 || failed > 0) {
				t.Errorf("%s, broken %v: %d rows, %d missing, named %d times", compress, broken, rows, missing, failed)
			}
		}
	}
}

// breakSection writes over the stream of a file's .debug_frame.
func breakSection(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".debug_frame")
	if s == nil || s.Flags&elf.SHF_COMPRESSED == 0 {
		t.Skip("skipped for want of an objcopy that compresses .debug_frame")
	}
	file, err := os.OpenFile(filepath.Clean(path), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(make([]byte, 16), int64(s.Offset)+24); err != nil {
		t.Fatal(err)
	}
}
