package x86

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"unspool/testdata/programs"
)

// TestInstructionsAreAsLongAsObjdumpSays compares lengths over whole libraries.
func TestInstructionsAreAsLongAsObjdumpSays(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("skipped for want of objdump")
	}
	files := programs.System(t)
	if testing.Short() {
		files = files[:1]
	}
	for _, path := range append(files, "/lib32/libc.so.6") {
		f, err := elf.Open(path)
		if err != nil {
			t.Log(err) // gcc-multilib's
			continue
		}
		defer f.Close()
		decode := (*Insn).Decode
		if f.Machine == elf.EM_386 {
			decode = (*Insn).Decode386
		}
		section := f.Section(".text")
		text, err := section.Data()
		if err != nil {
			t.Fatal(err)
		}
		n, wrong := 0, 0
		var in Insn
		for said := sizesOf(t, objdump, path); len(said) >= 5; said = said[5:] {
			at, size := binary.LittleEndian.Uint32(said), int(said[4])
			n++
			if b := text[at:]; !decode(&in, b) || in.Len != size {
				if wrong++; wrong <= 20 {
					t.Logf("%#x: % x: %d bytes, objdump says %d", section.Addr+uint64(at), b[:size], in.Len, size)
				}
			}
		}
		t.Logf("%s: %d of %d instructions differ", path, wrong, n)
		if wrong*10_000 > n {
			t.Errorf("%s: %d of %d instructions differ", path, wrong, n)
		}
	}
}

// sizesOf is what objdump says about the instructions of a file, five bytes for each: where it is in .text, and how
// long it is. It is asked once in all runs of the tests.
func sizesOf(t *testing.T, objdump, path string) []byte {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprint("sizes of instructions ", objdump, " ", path, info.Size(), info.ModTime())
	dir := programs.Keep(t, key, func(dir string) {
		cmd := exec.Command(objdump, "-d", "-j", ".text", "--no-show-raw-insn", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		var sizes []byte
		var first, last uint64
		var name string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			addrText, rest, ok := strings.Cut(lines.Text(), ":\t")
			addr, err := strconv.ParseUint(strings.TrimSpace(addrText), 16, 64)
			if !ok || err != nil {
				continue
			}
			if first == 0 {
				first = addr
			}
			// Lines with only a prefix, and those with (bad), are data.
			if size := addr - last; last != 0 && size < 16 && isMnemonic(name) {
				sizes = binary.LittleEndian.AppendUint32(sizes, uint32(last-first))
				sizes = append(sizes, byte(size))
			}
			last, name = addr, rest
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sizes"), sizes, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	sizes, err := os.ReadFile(filepath.Join(dir, "sizes"))
	if err != nil || len(sizes) == 0 {
		t.Fatalf("%d bytes: %v", len(sizes), err)
	}
	return sizes
}

// isMnemonic reports whether objdump has decoded an instruction, and not a single prefix.
func isMnemonic(s string) bool {
	fields := strings.Fields(s)
	for _, f := range fields {
		switch f {
		case "data16", "cs", "ds", "es", "ss", "fs", "gs", "lock", "rep", "repz", "repnz", "bnd", "notrack",
			"addr32", "rex.W", "xacquire", "xrelease":
			continue
		}
		return !strings.HasPrefix(f, "rex") && !strings.HasPrefix(f, "(bad)") && !strings.HasPrefix(f, ".byte")
	}
	return false
}
