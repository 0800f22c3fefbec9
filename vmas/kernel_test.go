package vmas

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The kernel's own records, as perf prints them, must lead to the mappings that the kernel shows in
// /proc/PID/maps, and to no process when all have exited.
func TestKernelRecordsLeadToWhatMapsShows(t *testing.T) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		t.Skip("no perf")
	}
	data := filepath.Join(t.TempDir(), "perf.data")
	const script = `ls / >/dev/null; (ls / >/dev/null; true); ls / | cat >/dev/null; exec cat /proc/self/maps`
	cmd := exec.Command(perf, "record", "-q", "-e", "dummy:u", "-o", data, "--", "sh", "-c", script)
	shown, err := cmd.Output()
	if err != nil {
		t.Skipf("perf record: %v", err)
	}
	printed, err := exec.Command(perf, "script", "-i", data, "--show-mmap-events", "--show-task-events").Output()
	if err != nil {
		t.Skipf("perf script: %v", err)
	}

	want := mapsModel(string(shown))
	tab := NewTable("")
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	pid := func(s string) uint32 { return uint32(number(s)) }
	var got string
	records, processes := 0, 0
	for line := range strings.Lines(string(printed)) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "PERF_RECORD_") {
			continue
		}
		if f := commLine.FindStringSubmatch(line); f != nil {
			tab.Comm(pid(f[3]), pid(f[4]), []byte(f[2]), f[1] != "")
		} else if f := taskLine.FindStringSubmatch(line); f != nil {
			if f[1] == "FORK" {
				tab.Fork(pid(f[2]), pid(f[3]), pid(f[4]), pid(f[5]))
				processes++
				continue
			}
			if s := tab.Space(pid(f[2])); s != nil {
				got = spaceModel(s) // the last to exit is cat
			}
			tab.Exit(pid(f[2]), pid(f[3]))
		} else if f := mmap2Line.FindStringSubmatch(line); f != nil {
			tab.Mmap(pid(f[1]), Map{Addr: number(f[2]), Len: number(f[3]), Offset: number(f[4]),
				Prot: ProtRead | ProtExec, Name: []byte(f[5])})
		} else {
			continue
		}
		records++
		checkTable(t, tab)
	}
	if records < 20 || processes < 3 {
		t.Skipf("only %d records of perf's are understood:\n%s", records, printed)
	}
	if got != want {
		t.Errorf("mappings by records\n%s\nby /proc/PID/maps\n%s", got, want)
	}
	for s := range tab.Spaces {
		if s.PPID != 0 || s.Comm(s.PID) != "perf-exec" {
			t.Errorf("process %d, %s, stays", s.PID, s.Comm(s.PID))
		}
	}
}

var (
	commLine  = regexp.MustCompile(`PERF_RECORD_COMM( exec)?: (.*):(\d+)/(\d+)$`)
	taskLine  = regexp.MustCompile(`PERF_RECORD_(FORK|EXIT)\((\d+):(\d+)\):\((\d+):(\d+)\)`)
	mmap2Line = regexp.MustCompile(
		`PERF_RECORD_MMAP2 (\d+)/\d+: \[(0x[0-9a-f]+)\((0x[0-9a-f]+)\) @ (0x[0-9a-f]+|0) .*\]: ..x. (.*)$`)
)

func mapsModel(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		var m Map
		if parseMapsLine([]byte(strings.TrimSuffix(line, "\n")), &m) && m.Prot&ProtExec != 0 &&
			string(m.Name) != "[vsyscall]" {
			fmt.Fprintf(&b, "%x-%x %x %s\n", m.Addr, m.Addr+m.Len, m.Offset, m.Name)
		}
	}
	return b.String()
}

func spaceModel(s *Space) string {
	var b strings.Builder
	for m := range s.Mappings() {
		fmt.Fprintf(&b, "%x-%x %x %s\n", m.Start, m.End, m.Offset, m.File.Name())
	}
	return b.String()
}
