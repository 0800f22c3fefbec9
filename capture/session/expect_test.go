package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"unspool/capture/session/sessiontest"
)

// Only a mapping of a file that is not known has the recording wait for its being opened.
func TestExpectTellsOfNewFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, exe, 0o755); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(0, 0) // before the mapping
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	format := sessiontest.Format()
	s := New(Config{Format: &format, Sink: sessiontest.Discard{}, Proc: "/proc", MaxStack: 2048})
	pid := uint32(os.Getpid())
	file := mapRecord(pid, 0x7e00_0000_0000, 1<<20, 0, path)
	if !s.Expect(file) {
		t.Error("a new file is not opened")
	}
	if err := s.Record(file); err != nil { // which reads it
		t.Fatal(err)
	}
	if s.Expect(file) {
		t.Error("a known file is opened again")
	}
	if s.Expect(mapRecord(pid, 0x7e00_0010_0000, 1<<20, 0, "//anon")) {
		t.Error("memory without a file is opened")
	}
}
