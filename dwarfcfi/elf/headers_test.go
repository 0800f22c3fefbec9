package elf

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"unspool/dwarfcfi/elf/elftest"
)

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

func TestLayoutOfASmallFile(t *testing.T) {
	for _, class := range []int{64, 32} {
		file := elftest.Small(class, make([]byte, 44), 20)
		l, err := ReadLayout(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		if l.PtrSize() != class/8 || l.Entry != 0x401000 || len(l.Loads) != 1 || l.Loads[0].Vaddr != 0x400000 ||
			l.Loads[0].Flags != elf.PF_R|elf.PF_X || string(l.BuildID) != "12345678" {
			t.Errorf("ELF%d: %+v", class, l)
		}
		if !l.Holds(l.EhFrame) || l.EhFrame.Size != 44 || l.EhFrameHdr.Addr != l.EhFrameHdrSegment.Vaddr || l.EhFrameHdr.Size != 20 {
			t.Errorf("ELF%d: %+v", class, l)
		}
		if len(l.PLT) != 1 || l.PLT[0] != (Range{".plt", 0x401800, 0x401840}) {
			t.Errorf("ELF%d: PLT %+v", class, l.PLT)
		}
		id, err := ReadBuildID(bytes.NewReader(file))
		if err != nil || string(id) != "12345678" {
			t.Errorf("ELF%d: build ID %q, %v", class, id, err)
		}
	}
}

func TestBuildIDsAgreeWithReadelf(t *testing.T) {
	for _, path := range []string{libc, "/usr/bin/perl", "/usr/bin/python3"} {
		f, err := os.Open(path)
		if err != nil {
			t.Logf("%s is not installed", path)
			continue
		}
		defer f.Close()
		out, err := exec.Command("readelf", "-n", "-W", path).Output()
		if len(out) == 0 {
			t.Skipf("readelf: %v", err)
		}
		m := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("%s: readelf shows no build ID", path)
		}
		if id, err := ReadBuildID(f); err != nil || hex.EncodeToString(id) != string(m[1]) {
			t.Errorf("%s: %x, %v; readelf says %s", path, id, err, m[1])
		}
	}
}

func TestWhatIsNoELFFile(t *testing.T) {
	good := elftest.Small(64, make([]byte, 44), 20)
	change := func(at int, b byte) []byte {
		file := bytes.Clone(good)
		file[at] = b
		return file
	}
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"empty", nil},
		{"short", good[:40]},
		{"text", bytes.Repeat([]byte("#!/bin/sh\n"), 10)},
		{"big-endian", change(elf.EI_DATA, 2)},
		{"no byte order", change(elf.EI_DATA, 0)},
		{"no class", change(elf.EI_CLASS, 9)},
		{"program headers behind the end", change(32+3, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadLayout(bytes.NewReader(c.file), int64(len(c.file)))
			if !errors.Is(err, ErrBadELF) {
				t.Errorf("got %v", err)
			}
			if _, err := ReadBuildID(bytes.NewReader(c.file)); !errors.Is(err, ErrBadELF) {
				t.Errorf("build ID: %v", err)
			}
		})
	}
}

func TestManyNotesAreNotAllRead(t *testing.T) {
	segments := make([]segment, maxSegments)
	for i := range segments {
		segments[i] = segment{typ: 4, filesz: 1 << 30}
	}
	r := &countingReader{Reader: bytes.NewReader(make([]byte, 1<<16))}
	if id := buildID(r, segments, nil); id != nil || r.reads > 2*maxNoteRuns {
		t.Errorf("%x after %d reads", id, r.reads)
	}
}

type countingReader struct {
	*bytes.Reader
	reads int
}

func (r *countingReader) ReadAt(b []byte, at int64) (int, error) {
	r.reads++
	return r.Reader.ReadAt(b, at)
}
