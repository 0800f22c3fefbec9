package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// TestDeletedProgramsHaveNames records programs whose files are gone when names are looked up: removed at
// once, replaced, or in a file system of their own. Those with a build ID are found by it, others by their
// inode. Two files have the same path in turn.
func TestDeletedProgramsHaveNames(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "objcopy")
	plain := programs.Build(t, "plain", "-g0")
	// held waits until the recorder holds the file: how long that takes is for tests that judge by time.
	const waits = `held() { until ls -l /proc/$u/fd | grep -q /gone$; do sleep 0.01; done; }; ` +
		`stopped() { until grep -q ^State:.T /proc/$!/status; do sleep 0.01; done; }; `
	for i, c := range []struct{ name, script string }{
		{"after it ended", "cp %[1]s gone && ./gone =20; held; rm gone"},
		{"while it runs", "cp %[1]s gone; ./gone @20 & held; stopped; rm gone; kill -CONT $!; wait"},
		{"replaced", "cp %[1]s gone && ./gone =20; held; rm gone; cp /bin/true gone; ./gone; echo >>gone"},
		// One of the two files may have a build ID, and the other one none.
		{"replaced by a program that runs, too", "cp %[1]s gone && ./gone =20; held; rm gone; " +
			"cp /usr/bin/sha1sum gone; ./gone /dev/null; held; rm gone"},
		{"with its mount", "unshare -m --propagation private sh -c '" + waits + "mkdir m && mount -t tmpfs gone m && " +
			"cp %[1]s m/gone; m/gone @20 & held; stopped; kill -CONT $!; wait'"},
	} {
		for j, id := range []string{"build ID", "inode"} {
			// Each two of script, identity and option meet.
			option := []string{"--sandbox", "--no-sandbox"}[(i+j)%2]
			t.Run(fmt.Sprintf("%s by %s %s", c.name, id, option), func(t *testing.T) {
				t.Parallel()
				if c.name == "with its mount" {
					programs.NeedMounts(t)
				}
				dir := t.TempDir()
				program := plain
				if id == "inode" {
					program = filepath.Join(dir, "plain")
					output(t, "", "objcopy", "--remove-section=.note.gnu.build-id", plain, program)
				}
				alone := func(cmd *exec.Cmd) { // without the copies in perf's cache
					cmd.Dir, cmd.Env = dir, append(os.Environ(), noPerfConfig, "HOME="+dir)
				}
				script := ofRecorder + waits + fmt.Sprintf(c.script, program)
				e := start(t, dir, alone, "record", option, "-o", "out.folded", "--no-inline", "-e",
					"page-faults:u", "-c", "1", "--stack-size", "8192", "--", "sh", "-c", script).finish(t, time.Minute)
				folded, err := os.ReadFile(filepath.Join(dir, "out.folded"))
				if err != nil || e.status != 0 {
					t.Fatalf("status %d, %v\n%s", e.status, err, e.stderr)
				}
				if named := regexp.MustCompile(`;main;(plain_\w+;)*plain_leaf 20\n`); !named.Match(folded) ||
					strings.Contains(e.stderr, "no names") {
					t.Errorf("no names\n%s\n%s", folded, e.stderr)
				}
			})
		}
	}
}

// TestProgramRebuiltInPlace records a program without a build ID, whose file becomes another program
// afterwards. No function of that is taken for one of the recording.
func TestProgramRebuiltInPlace(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	output(t, "", "objcopy", "--remove-section=.note.gnu.build-id", programs.Build(t, "plain", "-g0"), program)
	r := record(t, slices.Concat(programs.Faults(), []string{"--", program, programs.Times(counted)})...)
	for _, c := range []struct {
		name    string
		rebuild bool
	}{{"as recorded", false}, {"rebuilt", true}} {
		if c.rebuild {
			content, err := os.ReadFile(programs.Build(t, "burn", "-g0"))
			if err == nil {
				err = writeProgram(program, content)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		e := unspool(t, dir, "report", r.path)
		text := strings.Join(strings.Fields(e.stdout), " ") // without the ends of lines
		said := strings.Contains(text, program+": no names: written to since it was recorded")
		named := strings.Contains(e.stdout, "plain_leaf")
		if e.status != 0 || named == c.rebuild || said != c.rebuild {
			t.Errorf("%s: status %d\n%s\n%s", c.name, e.status, e.stdout, e.stderr)
		}
	}
}
