package main

import (
	"os"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
)

// TestMappedFileIsTheOneThatIsRead records programs whose path no longer, or
// not here, leads to the file that they run.
func TestMappedFileIsTheOneThatIsRead(t *testing.T) {
	t.Parallel()
	needRoot(t)
	built := buildCase(t, "stays.c")
	for _, c := range []struct {
		name  string
		start func(t *testing.T, path string) *programs.Process
	}{
		{"deleted", func(t *testing.T, path string) *programs.Process {
			p := programs.StartCounted(t, path, counted)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"replaced by another program", func(t *testing.T, path string) *programs.Process {
			p := programs.StartCounted(t, path, counted)
			other := filepath.Join(filepath.Dir(path), "other")
			copyFile(t, programs.Build(t, "deep"), other)
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"in a mount namespace of its own", func(t *testing.T, path string) *programs.Process {
			programs.NeedMounts(t)
			// The directory that the test sees stays empty: the program lies on
			// a file system that only it sees.
			script := path + ".sh"
			text := "#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none " + filepath.Dir(path) +
				" && cp " + built + " " + path + " && exec " + path + " \"$@\"' sh \"$@\"\n"
			if err := writeProgram(script, []byte(text)); err != nil {
				t.Fatal(err)
			}
			os.Remove(path)
			return programs.StartCounted(t, script, counted)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "program")
			copyFile(t, built, path)
			recordStaying(t, c.start(t, path)).wholeCounted(t)
		})
	}
}
