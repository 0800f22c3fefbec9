package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"unspool/testdata/programs"
)

// TestMappedFileIsTheOneThatIsRead records programs whose path no longer, or
// not here, leads to the file that they run.
func TestMappedFileIsTheOneThatIsRead(t *testing.T) {
	t.Parallel()
	needRoot(t)
	built := programs.Build(t, "qsort")
	for _, c := range []struct {
		name  string
		start func(t *testing.T, path string) *programs.Process
	}{
		{"deleted", func(t *testing.T, path string) *programs.Process {
			p := programs.Start(t, path, 20)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"replaced by another program", func(t *testing.T, path string) *programs.Process {
			p := programs.Start(t, path, 20)
			other := filepath.Join(filepath.Dir(path), "other")
			copyFile(t, programs.Build(t, "deep"), other)
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"in a mount namespace of its own", func(t *testing.T, path string) *programs.Process {
			need(t, "unshare")
			// The directory that the test sees stays empty: the program lies on
			// a file system that only it sees.
			script := path + ".sh"
			text := "#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none " + filepath.Dir(path) +
				" && cp " + built + " " + path + " && exec " + path + " \"$@\"' sh \"$@\"\n"
			if err := writeProgram(script, []byte(text)); err != nil {
				t.Fatal(err)
			}
			os.Remove(path)
			return programs.Start(t, script, 20)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			copyFile(t, built, path)
			p := c.start(t, path)
			r := recordEnough(t, "-p", strconv.Itoa(p.Process.Pid))
			if r.stats.Samples.User < enough {
				t.Fatalf("%d samples", r.stats.Samples.User)
			}
			if r.stats.incomplete() > 0.01 {
				t.Errorf("ended: %v", r.stats.Unwind.Ended)
			}
		})
	}
}
