package main

import (
	"bytes"

	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/programs"
)

// TestPerfRecordsBesideUs has perf record, and read what it has recorded, while the whole system is recorded.
// Kernels mark the mappings of every profiler as long as one asks for build IDs, and perf 6.1 aborts on such
// a mark.
func TestPerfRecordsBesideUs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-q", "-a", "-F", "99", "-o", "beside.data")
	recordsInto(t, filepath.Join(dir, "beside.data"))
	theirs := filepath.Join(dir, "theirs.data")
	for i := range 10 {
		for _, args := range [][]string{
			{"record", "-q", "-F", "99", "-e", "cpu-clock", "-o", theirs, "--", "sh", "-c", "/bin/true; /bin/true"},
			{"script", "-i", theirs, "--show-mmap-events"},
		} {
			cmd := exec.Command("perf", args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("round %d: perf %s: %v\n%s", i, args[0], err, &stderr)
			}
		}
	}
	r.Process.Signal(syscall.SIGINT)
	if e := r.finish(t, 10*time.Second); e.status != 0 {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
}

// TestBuildIDsOfShortLivedPrograms records programs of 5 ms, each a build of its own, some of which are
// removed as soon as they have ended: the build IDs of all are in the recording, though the kernel was not
// asked for any.
func TestBuildIDsOfShortLivedPrograms(t *testing.T) {
	needRoot(t)
	const id = "f00dfeed00112233445566778899aabbccddeeff"
	program, err := os.ReadFile(programs.Build(t, "burn", "-Wl,--build-id=0x"+id))
	if err != nil {
		t.Fatal(err)
	}
	note, _ := hex.DecodeString(id)
	if bytes.Count(program, note) != 1 {
		t.Fatalf("%d notes with the build ID", bytes.Count(program, note))
	}
	for _, c := range []struct {
		name, after string
		beside      []string
	}{
		{name: "which stay", after: ":"},
		{name: "which are removed", after: `rm "$p"`},
		// Its first samples need a survey of 40 MB of code, which is waited for.
		{name: "which are removed beside Node", after: `rm "$p"`, beside: []string{"node", "-e", "for(;;);"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.beside) > 0 {
				need(t, c.beside[0])
				neighbour(t, c.beside...)
			}
			// To open a file that is gone 5 ms after it was mapped, unspool has to get a CPU in time, which a
			// busy machine does not always give it.
			if testing.Short() && c.after != ":" {
				t.Skip("the race detector is too slow for files of 5 ms")
			}
			const attempts, programs = 5, 100
			for range attempts {
				mapped, listed := recordShort(t, program, note, programs, c.after)
				t.Logf("of %d programs, %d build IDs with the mapping, %d in the list of sampled files", programs, mapped,
					listed)
				if mapped >= 0.99*programs && listed >= 0.99*programs {
					return
				}
			}
			t.Error("fewer than 99 %")
		})
	}
}

// recordShort records n copies of a program, each of which is another build, in a shell that does something
// after each.
func recordShort(t *testing.T, program, note []byte, n int, after string) (mapped, listed int) {
	dir := t.TempDir()
	want := make(map[string]string) // build ID by path
	for i := range n {
		path, own := filepath.Join(dir, fmt.Sprintf("burn%d", i)), bytes.Clone(note)
		copy(own[len(own)-2:], []byte{byte(i >> 8), byte(i)})
		if err := writeProgram(path, bytes.ReplaceAll(program, note, own)); err != nil {
			t.Fatal(err)
		}
		want[path] = hex.EncodeToString(own)
	}
	script := `for p in "$0"/burn*; do "$p"; ` + after + `; sleep 0.01; done`
	data := filepath.Join(t.TempDir(), "perf.data")
	e := unspool(t, dir, "record", "-F", "1999", "-m", "32M", "-o", data, "-a", "--", "sh", "-c", script, dir)
	if e.status != 0 {
		t.Fatalf("status %d: %s", e.status, e.stderr)
	}
	mapped, listed = identified(t, data, want)
	if out := string(outputOf(t, "perf", "buildid-list", "-i", data)); strings.Count(out, dir) != listed {
		t.Errorf("perf lists others:\n%s", out)
	}
	return mapped, listed
}

func outputOf(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	need(t, name)
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// identified counts the files whose build ID is in the record of a mapping, and in the recording's list.
func identified(t *testing.T, path string, want map[string]string) (mapped, listed int) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen := make(map[string]bool)
	err = r.Ordered(func(rec perfring.Record, _ *perfring.Format, _ uint64) error {
		var m perfring.Mmap2
		if perfring.DecodeMmap2(rec, &m) == nil && len(m.BuildID) > 0 &&
			hex.EncodeToString(m.BuildID) == want[string(m.Path)] {
			seen[string(m.Path)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range r.BuildIDs() {
		if own, ok := want[id.Path]; ok {
			if hex.EncodeToString(id.ID) != own {
				t.Errorf("%s: build ID %x, not %s", id.Path, id.ID, own)
			}
			listed++
		}
	}
	return len(seen), listed
}
