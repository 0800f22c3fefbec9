package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/programs"
	"unspool/unwind/image/fusetest"
)

// TestNamesBesideAFileThatHangs looks up names where the server of one of the files does not answer any more:
// the other files have names, the file is named once, and the command ends in time, and its process with it.
func TestNamesBesideAFileThatHangs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	files := t.TempDir()
	copyFile(t, programs.Build(t, "plain", "-static"), filepath.Join(files, "program"))
	for _, mode := range []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead, fusetest.HangContents} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			server, dir := fusetest.Show(t, files), t.TempDir()
			path := filepath.Join(server.Dir, "program")
			sampledThere(t, dir, path)
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer)
			for _, c := range []struct {
				command, output string
				interrupt       bool
			}{
				{"report perf.data", "", false},
				{"report --no-sandbox perf.data", "", false},
				{"report perf.data", "", true},
				{"convert perf.data -o out.folded", "out.folded", false},
				{"convert raw.data -o raw.folded", "raw.folded", false},
			} {
				late := time.AfterFunc(hangsFor, func() { server.Be(t, fusetest.Answer) })
				e := start(t, dir, nil, strings.Fields(c.command)...)
				if c.interrupt { // whether it has begun by then or not
					e.Process.Signal(syscall.SIGINT)
				}
				end := e.finish(t, 2*hangsFor)
				if !late.Stop() {
					t.Errorf("%s: it ended only when the server answered", c.command)
				}
				text := end.stdout + end.stderr
				if c.interrupt {
					continue // it has ended
				}
				if c.output != "" {
					folded, err := os.ReadFile(filepath.Join(dir, c.output))
					if err != nil {
						t.Fatal(err)
					}
					text += string(folded)
				}
				text = strings.Join(strings.Fields(text), " ") // without the ends of lines
				named := strings.Count(text, path+": no names") == 1 && strings.Contains(text, "does not answer")
				if end.status != 0 || !named || !strings.Contains(text, "[program") ||
					!strings.Contains(text, "qsort_leaf") {
					t.Errorf("%s: status %d\n%s", c.command, end.status, text)
				}
			}
		})
	}
}

// sampledThere makes recordings of a program at a path, and of another one, in a folder: perf.data by unspool, and
// raw.data by perf.
func sampledThere(t *testing.T, dir, path string) {
	t.Helper()
	beside := programs.Build(t, "qsort")
	both := []*programs.Process{programs.StartCounted(t, path, counted), programs.StartCounted(t, beside, counted)}
	pids := fmt.Sprintf("%d,%d", both[0].Process.Pid, both[1].Process.Pid)
	r, control := startControlled(t, dir, slices.Concat([]string{"record", "-q", "-p", pids, "-o", "perf.data"},
		programs.Faults())...)
	control("enable")
	for _, p := range both {
		p.Continue()
	}
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Fatalf("%+v", e)
	}
	output(t, dir, "perf", slices.Concat([]string{"record", "-q", "-N", "-m", "8M", "--call-graph", "dwarf,8192",
		"-o", "raw.data"},
		programs.Faults(), []string{"--", "sh", "-c", `"$0" =20; "$1" =20`, path, beside})...)
}
