package main

import (
	"fmt"
	"os"
	"path/filepath"
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
			program, burns := programs.Start(t, path, 60).Process.Pid, burner(t)
			pids := fmt.Sprintf("%d,%d", program, burns)
			output(t, dir, binary, "record", "-q", "-d", "0.5", "-e", "cpu-clock", "-p", pids, "-o", "perf.data")
			output(t, dir, "perf", "record", "-q", "-N", "-e", "cpu-clock", "--call-graph", "dwarf,8192", "-p", pids,
				"-o", "raw.data", "--", "sleep", "0.5")
			if samplesOfProcess(t, filepath.Join(dir, "perf.data"), program) == 0 {
				t.Fatal("the program was not sampled")
			}
			run := func(sig syscall.Signal) { // they run only while they are recorded: others need the CPUs
				syscall.Kill(program, sig)
				syscall.Kill(burns, sig)
			}
			run(syscall.SIGSTOP)
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer)
			late := time.AfterFunc(50*time.Second, func() { server.Be(t, fusetest.Answer) })
			for _, c := range []struct {
				command, output string
				interrupt       bool
			}{
				{"report perf.data", "", false},
				{"report --no-sandbox perf.data", "", false},
				{"report perf.data", "", true},
				{"convert perf.data -o out.folded", "out.folded", false},
				{"convert raw.data -o raw.folded", "raw.folded", false},
				{"record -d 0.5 -o live.folded -p " + pids, "live.folded", false},
			} {
				if c.output == "live.folded" {
					run(syscall.SIGCONT)
				}
				e := start(t, dir, nil, strings.Fields(c.command)...)
				if c.interrupt {
					time.Sleep(500 * time.Millisecond)
					e.Process.Signal(syscall.SIGINT)
				}
				end := e.finish(t, time.Minute)
				text := end.stdout + end.stderr
				if c.interrupt {
					if end.status == 0 && !strings.Contains(text, "interrupted") {
						t.Errorf("%s: it was not interrupted\n%s", c.command, text)
					}
					continue
				}
				if c.output != "" {
					folded, err := os.ReadFile(filepath.Join(dir, c.output))
					if err != nil {
						t.Fatal(err)
					}
					text += string(folded)
				}
				text = strings.Join(strings.Fields(text), " ") // without the ends of lines
				// Under a server that hangs, the program itself may wait.
				sampled := strings.Contains(text, "[program")
				named := strings.Count(text, path+": no names") == 1 && strings.Contains(text, "does not answer")
				if end.status != 0 || named != sampled || !sampled && c.output != "live.folded" ||
					!strings.Contains(text, "burn_outer") {
					t.Errorf("%s: status %d\n%s", c.command, end.status, text)
				}
			}
			if !late.Stop() {
				t.Error("it ended only when the server answered")
			}
		})
	}
}
