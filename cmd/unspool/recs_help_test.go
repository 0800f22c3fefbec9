package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"unspool/testdata/recordings"
)

// placed is the path of a recording of package recordings, with its programs beside it. It may be changed.
func placed(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(recordings.Place(t, name), name+".data")
}

// buildID is that of a program, in hexadecimal.
func buildID(t testing.TB, path string) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	note, err := f.Section(".note.gnu.build-id").Data()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", note[16:]) // behind three sizes and the name "GNU"
}

var pending = regexp.MustCompile(`(?m)^(?:SigPnd|ShdPnd):\s+0*[1-9a-f]`)

// hasTakenSignals reports whether a process has no signals that it is still to take.
func hasTakenSignals(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || !pending.Match(status)
}
