package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"unspool/unwind/rule"
)

// TestClaimsOfASparseFile has files of a few pages on disk that claim a huge .eh_frame: a section that
// exceeds the bound for one file, or for all, is not read, and reported.
func TestClaimsOfASparseFile(t *testing.T) {
	const each = 200 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var failed []string
	s := New(Config{Proc: "/proc", Hooks: Hooks{
		Failed: func(_ string, err error) { failed = append(failed, err.Error()) },
	}})
	for i, c := range []struct {
		claim uint64
		used  bool
	}{{maxOfImage + 1, false}, {each, true}, {each, true}, {each, true}, {each, true}, {each, true},
		{each, false}} {
		path := filepath.Join(t.TempDir(), "program")
		id := copyELF(t, libc(t), path).Bytes()
		content, err := os.ReadFile(path)
		if err == nil {
			other := append(bytes.Clone(id[:len(id)-1]), id[len(id)-1]+1+byte(i))
			err = os.WriteFile(path, bytes.Replace(content, id, other, 1), 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
		claimEhFrame(t, path, c.claim)
		space, _ := mappedAt(t, path, 0x400000)
		m := firstMapping(space)
		im := s.Lookup(1, m)
		if err := im.Parse(); (err == nil) != c.used {
			t.Errorf("file %d: %v", i, err)
		}
		if r := im.Rule(m, m.Start+codeOffset(t, path)); (r != rule.Unreadable) != c.used {
			t.Errorf("file %d: %v", i, r)
		}
	}
	if len(failed) != 2 || !strings.Contains(failed[0], "at most") || !strings.Contains(failed[1], "no room") {
		t.Errorf("%q", failed)
	}
	runtime.ReadMemStats(&after)
	if n := after.Sys - before.Sys; after.Sys > before.Sys && n > 3*maxOfAll {
		t.Errorf("%d bytes of memory", n)
	}
}

// codeOffset is where a file has some of its code.
func codeOffset(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	return text.Offset + 64
}

// claimEhFrame makes a file say that its .eh_frame has size bytes, and as long as that takes.
func claimEhFrame(t *testing.T, path string, size uint64) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var shoff [8]byte
	if _, err := file.ReadAt(shoff[:], 40); err != nil { // e_shoff
		t.Fatal(err)
	}
	for i, s := range f.Sections {
		if s.Name != ".eh_frame" {
			continue
		}
		at := int64(binary.LittleEndian.Uint64(shoff[:])) + int64(i)*64 + 32 // sh_size
		if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, size), at); err != nil {
			t.Fatal(err)
		}
		// The headers lie behind the section: its claim reaches over them, and beyond the old end.
		if err := file.Truncate(int64(s.Offset + size)); err != nil {
			t.Skip("skipped for want of sparse files: ", err)
		}
		return
	}
	t.Skip("skipped for want of .eh_frame")
}
