package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestPerfRecordsBesideUs has perf record, and read what it has recorded, while the whole system is recorded.
// Kernels mark the mappings of every profiler as long as one asks for build IDs, and perf 6.1 aborts on such
// a mark.
func TestPerfRecordsBesideUs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	s := startRecording(t, "-q", "-a", "-F", "99")
	theirs := filepath.Join(t.TempDir(), "theirs.data")
	for i := range 2 {
		for _, args := range [][]string{
			slices.Concat([]string{"record", "-q", "-o", theirs}, programs.Faults(),
				[]string{"--", "sh", "-c", "/bin/true; /bin/true"}),
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
	s.control("stop")
	if e := s.finish(t, time.Minute); e.status != 0 {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
}

// shortLived is how many programs are recorded, each a build of its own.
const shortLived = 20

// TestBuildIDsOfShortLivedPrograms records programs with a sample each: the build IDs of all are in the recording,
// though the kernel was not asked for any. Some are removed as soon as they have ended.
func TestBuildIDsOfShortLivedPrograms(t *testing.T) {
	t.Parallel()
	recordShortLived(t, func(*testing.T, int) {})
}

// TestMachineBuildIDsWithMappings also wants each build ID in the record of the mapping. Where files are opened late,
// nobody waits for that.
func TestMachineBuildIDsWithMappings(t *testing.T) {
	lane.Machine(t, 0.9)
	recordShortLived(t, func(t *testing.T, mapped int) {
		lane.Figure(t, "%d of %d with the mapping", mapped, shortLived)
		if mapped != shortLived {
			t.Errorf("of %d programs, %d build IDs with the mapping", shortLived, mapped)
		}
	})
}

// recordShortLived hands out how many build IDs are in the records of mappings.
func recordShortLived(t *testing.T, withMapping func(t *testing.T, n int)) {
	t.Helper()
	needRoot(t)
	for _, c := range []struct {
		name, after string
		drained     bool // before a program ends
	}{
		{"which stay", ":", false},
		// To open a file that is gone when its program has ended, unspool has to get a CPU before.
		{"which are removed", `rm "$p"`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			want := manyBuilds(t, dir, buildCase(t, "touches.c", "-Wl,--build-id=0x"+markedID), shortLived)
			p, in, out := fifoToucher(t)
			s := startRecording(t, slices.Concat(rareOnly(t), []string{"-a", "--", "sh", "-c",
				`exec <"$1" >"$2"; for p in "$0"/build*; do "$p"; ` + c.after + `; done`, dir, in, out})...)
			for range shortLived {
				p.ready()
				p.touch(1)
				if c.drained {
					s.drained()
				}
				p.tell("quit")
			}
			r := s.end(t)
			mapped, listed := identified(t, r.path, want)
			if listed != shortLived {
				t.Errorf("of %d programs, %d build IDs in the list of sampled files", shortLived, listed)
			}
			withMapping(t, mapped)
			if out := output(t, "", "perf", "buildid-list", "-i", r.path); strings.Count(out, dir) != listed {
				t.Errorf("perf lists others:\n%s", out)
			}
		})
	}
}

// fifoToucher is for touchers of a command that reads from the FIFO in, and writes to out.
func fifoToucher(t *testing.T) (p *toucher, in, out string) {
	t.Helper()
	p = &toucher{t: t, in: programs.FIFO(t), from: programs.FIFO(t)}
	p.answers = bufio.NewReader(p.from)
	return p, p.in.Name(), p.from.Name()
}

// markedID is the build ID of a program of which manyBuilds makes others.
const markedID = "f00dfeed00112233445566778899aabbccddeeff"

// manyBuilds makes n builds of a program, and returns their build IDs by path.
func manyBuilds(t *testing.T, dir, program string, n int) map[string]string {
	t.Helper()
	content := mustRead(t, program)
	note, _ := hex.DecodeString(markedID)
	if bytes.Count(content, note) != 1 {
		t.Fatalf("%d notes with the build ID", bytes.Count(content, note))
	}
	builds := make(map[string]string)
	for i := range n {
		path, own := filepath.Join(dir, fmt.Sprintf("build%d", i)), bytes.Clone(note)
		copy(own[len(own)-2:], []byte{byte(i >> 8), byte(i)})
		if err := writeProgram(path, bytes.ReplaceAll(content, note, own)); err != nil {
			t.Fatal(err)
		}
		builds[path] = hex.EncodeToString(own)
	}
	return builds
}

// TestMachineBuildIDsOfShortLivedPrograms records programs of 5 ms that are removed as soon as they have ended.
func TestMachineBuildIDsOfShortLivedPrograms(t *testing.T) {
	lane.Machine(t, 0.9)
	needRoot(t)
	for _, c := range []struct {
		name   string
		beside []string
	}{
		{name: "alone"},
		// Its first samples need a survey of 40 MB of code, which is waited for.
		{name: "beside Node", beside: []string{"node", "-e", "for(;;);"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.beside) > 0 {
				need(t, c.beside[0])
				neighbour(t, c.beside...)
			}
			const n = 100
			dir := t.TempDir()
			want := manyBuilds(t, dir, programs.Build(t, "burn", "-Wl,--build-id=0x"+markedID), n)
			r := record(t, "-F", "1999", "-m", "32M", "-a", "--", "sh", "-c",
				`for p in "$0"/build*; do "$p"; rm "$p"; sleep 0.01; done`, dir)
			mapped, listed := identified(t, r.path, want)
			lane.Figure(t, "of %d programs, %d build IDs with the mapping, %d in the list of sampled files", n, mapped, listed)
			if mapped*100 < n*99 || listed*100 < n*99 {
				t.Errorf("of %d programs, %d build IDs with the mapping, %d in the list of sampled files", n, mapped, listed)
			}
		})
	}
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
	err = r.Ordered(func(rec perfring.Record, _ *perfring.SampleFormat, _ uint64) error {
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
