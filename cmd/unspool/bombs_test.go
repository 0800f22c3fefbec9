package main

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	le "encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestFilesThatClaimMuch records programs whose files claim much larger sections than they have, with a
// Python beside them, and reports the recording: both take bounded memory, and say what they left
// out. Those files that take the most are left to the other lane.
func TestFilesThatClaimMuch(t *testing.T) {
	t.Parallel()
	filesThatClaimMuch(t, func(name string) bool { return name != "strings" && name != "zlib" },
		"-m", "64M") // samples wait there while a busy machine reads the files
}

// TestMachineFilesThatClaimMuch has all of them, and bounds the time, too.
func TestMachineFilesThatClaimMuch(t *testing.T) {
	lane.Machine(t, 0.95)
	cpu := filesThatClaimMuch(t, func(string) bool { return true })
	lane.Figure(t, "%.1f s of CPU time", cpu.Seconds())
	if cpu > 60*time.Second {
		t.Errorf("it took %v of CPU time", cpu)
	}
}

// filesThatClaimMuch returns the CPU time that recording and reporting took.
func filesThatClaimMuch(t *testing.T, wanted func(name string) bool, options ...string) (cpu time.Duration) {
	t.Helper()
	needRoot(t)
	need(t, "gcc", "objcopy", "strip", "xz", "python3")
	const files, claim = 4, 380 << 20
	original := filepath.Join(t.TempDir(), "original")
	gcc := exec.Command("gcc", "-g", "-O1", "-x", "c", "-", "-o", original, "-Wl,--build-id=0x"+claimsID)
	// It touches some pages, each of which is a sample.
	gcc.Stdin = strings.NewReader(`static char pages[40 << 12] __attribute__((aligned(4096)));
		int main() { for (int i = 0; i < 40; i++) ((volatile char *)pages)[i << 12] = 1; return 0; }`)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		name     string
		original func(t *testing.T, path string) // changes the program
		copied   func(t *testing.T, path string) // changes each copy; may be nil
		says     string                          // in report's words, "" where nothing is left out
		most     uint64                          // MiB of memory
	}{
		{"strings", nil, claims(".strtab", claim), "no room for", 1300},
		{"symbols", nil, claims(".symtab", claim+claim/8), "more than", 200},
		{"unwind tables", stripped, claims(".eh_frame", claim+claim/8), "at most", 200},
		{"xz", addXZ, nil, "bytes from", 200},
		{"zlib", addCompressed, nil, "", 300},
	} {
		if !wanted(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "xz" {
				t.Skip("skipped with -short: gigabytes")
			}
			program := filepath.Join(t.TempDir(), "original")
			copyFile(t, original, program)
			if c.original != nil {
				c.original(t, program)
			}
			var run []string
			for i := range files {
				path := filepath.Join(filepath.Dir(program), fmt.Sprint("claims-", i))
				withID(t, program, path, i)
				if c.copied != nil {
					c.copied(t, path)
				}
				run = append(run, path)
			}
			dir := t.TempDir()
			// Of copies of this size, a ring has room for all page faults of python3's start.
			recorded := measured(t, dir, slices.Concat([]string{"record", "-o", "perf.data", "--stats", "stats.json",
				"--stack-size", "16384"}, options, programs.Faults(), []string{"--", "sh", "-c",
				fmt.Sprintf("%s -I -S -c 'sorted(range(100))' & %s; wait", pythonItself(t), strings.Join(run, "; "))})...)
			reported := measured(t, dir, "report", "perf.data")
			content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
			if err != nil {
				t.Fatal(err)
			}
			lost := readStatistics(t, content).Samples.Lost
			for _, path := range run { // whose names take as long once more
				os.Remove(path)
			}
			beside := besidePython(t, recording{path: filepath.Join(dir, "perf.data")})
			t.Logf("%v; %d lost; record took %d MiB, report %d MiB", beside, lost, recorded.most,
				reported.most)
			if beside.honest < touched || beside.other < files*touched || beside.complete+beside.gaps != beside.honest {
				t.Error(beside)
			}
			if lost > 0 || recorded.most > c.most || reported.most > c.most {
				t.Errorf("%d lost; %d and %d MiB, want %d at most", lost, recorded.most, reported.most, c.most)
			}
			said := reported.stdout + reported.stderr
			words := strings.Join(strings.Fields(said), " ") // lines end where the paths' lengths say
			if reported.status != 0 || !strings.Contains(words, c.says) {
				t.Errorf("report: status %d, want %q to be said\n%s", reported.status, c.says, said)
			}
			cpu += recorded.cpu + reported.cpu
		})
	}
	return cpu
}

// claimsID is the build ID of the program; copies have another digit at its end.
const claimsID = "00112233445566778899aabbccddeeff0011223f"

// withID copies a program and gives the copy a build ID of its own.
func withID(t *testing.T, from, to string, n int) {
	t.Helper()
	id, err := hex.DecodeString(claimsID)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(id)
	other[len(other)-1] = byte(n)
	if err := writeProgram(to, bytes.Replace(content, id, other, 1)); err != nil {
		t.Fatal(err)
	}
}

// A cost is the output of a program, and the most memory that it had, in MiB.
type cost struct {
	ended
	most uint64
}

// measured runs the program under test. Its memory is measured by another process, as a child of this one
// would begin with the memory of this one.
func measured(t *testing.T, dir string, args ...string) (c cost) {
	t.Helper()
	const script = `import os, resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as f: print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, file=f)
os._exit(status)`
	at := filepath.Join(t.TempDir(), "most")
	python := pythonItself(t)
	c.ended = start(t, dir, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = python, append([]string{"python3", "-c", script, at}, cmd.Args...)
	}, args...).finish(t, 3*time.Minute)
	content, err := os.ReadFile(at)
	if err == nil {
		_, err = fmt.Sscan(string(content), &c.most)
	}
	if err != nil || c.status != 0 {
		t.Fatalf("status %d, %v\n%s", c.status, err, c.stderr)
	}
	return c
}

// claims changes a file to claim that a section is so large.
func claims(section string, size uint64) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		claimSection(t, path, section, size)
	}
}

func stripped(t *testing.T, path string) {
	t.Helper()
	output(t, "", "strip", path)
}

// claimSection makes an ELF file say that a section is size bytes long, and as long as that takes.
func claimSection(t *testing.T, path, section string, size uint64) {
	t.Helper()
	s, at := sectionHeader(t, path, section)
	const shSize = 32
	patch(t, path, at+shSize, le.LittleEndian.AppendUint64(nil, size))
	if err := os.Truncate(path, int64(s.Offset+size)); err != nil {
		t.Skip("skipped for want of sparse files: ", err)
	}
}

// sectionHeader is a section of an ELF file and where its header lies.
func sectionHeader(t *testing.T, path, section string) (s *elf.Section, at int64) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const shoff, headerSize = 40, 64
	for i, s := range f.Sections {
		if s.Name == section {
			return s, int64(le.LittleEndian.Uint64(content[shoff:])) + int64(i)*headerSize
		}
	}
	t.Fatalf("%s has no %s", path, section)
	return nil, 0
}

func patch(t *testing.T, path string, at int64, content []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(content, at); err != nil {
		t.Fatal(err)
	}
}

// addXZ strips a program and gives it a .gnu_debugdata of zeros.
func addXZ(t *testing.T, path string) {
	t.Helper()
	const size = 128 << 20
	packed := filepath.Join(programs.Keep(t, fmt.Sprint("xz -1 of zeros: ", size), func(dir string) {
		output(t, dir, "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | xz -1 >packed", size))
	}), "packed")
	stripped(t, path)
	output(t, "", "objcopy", "--add-section=.gnu_debugdata="+packed, path)
}

// addCompressed has each section of a program's debugging information hold zeros, compressed.
func addCompressed(t *testing.T, path string) {
	t.Helper()
	const size = 60 << 20
	var b bytes.Buffer
	for _, v := range []uint64{uint64(elf.COMPRESS_ZLIB), uint64(size), 1} { // Elf64_Chdr
		b.Write(le.LittleEndian.AppendUint64(nil, v))
	}
	z := zlib.NewWriter(&b)
	if _, err := z.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	packed := filepath.Join(t.TempDir(), "packed")
	if err := os.WriteFile(packed, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{".debug_abbrev", ".debug_str", ".debug_line", ".debug_line_str",
		".debug_aranges"} {
		output(t, "", "objcopy", "--update-section="+section+"="+packed, path)
		_, at := sectionHeader(t, path, section)
		const shFlags = 8
		patch(t, path, at+shFlags, le.LittleEndian.AppendUint64(nil, uint64(elf.SHF_COMPRESSED)))
	}
}
