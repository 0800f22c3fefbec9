// Package recordings has small recordings for tests that need an input and not a live machine. They are of programs of
// our own, which are static and had no environment. The script make says how each was made, and makes them anew.
//
// The programs were recorded in the folder [Here], which is gone. They are kept below [Root], for --symfs of perf and
// unspool. [Place] puts them where readers find them without options.
package recordings

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

// Here is where the programs were when they were recorded. Its end is replaced in copies: see [Place].
const Here = "/tmp/unspool-recording-AAAAAAAAAAAAAA"

// folder finds this package's folder from that of the test, in which a test begins.
func folder(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; len(at) > 1; at = filepath.Dir(at) {
		dir := filepath.Join(at, "testdata", "recordings")
		if _, err := os.Stat(filepath.Join(dir, "make")); err == nil {
			return dir
		}
	}
	t.Fatal("testdata/recordings is in no folder above that of the test")
	return ""
}

// Path is the path of a recording, which is not to be changed.
func Path(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(folder(t), name, "perf.data")
}

// Root is the folder below which the recorded programs are, for --symfs.
func Root(t testing.TB) string {
	t.Helper()
	return filepath.Join(folder(t), "root")
}

// Program is the path of a recorded program below [Root].
func Program(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(Root(t), Here, name)
}

// Place copies all programs and the named recordings into a new folder, which is removed when the test ends.
// Recordings are called NAME.data there, and say that the programs were recorded where they are now.
func Place(t testing.TB, names ...string) (dir string) {
	t.Helper()
	const letters = 14
	dir = Here[:len(Here)-letters] + rand.Text()[:letters] // as long as Here, and so all records stay as they are
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range names {
		content, err := os.ReadFile(Path(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte(Here)) {
			t.Fatalf("the recording %s does not say %s", name, Here)
		}
		content = bytes.ReplaceAll(content, []byte(Here), []byte(dir))
		if err := os.WriteFile(filepath.Join(dir, name+".data"), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS(Program(t, ""))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// CPUs is how many the machine had where the recordings were made.
const CPUs = 2
