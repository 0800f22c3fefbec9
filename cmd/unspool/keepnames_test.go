package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// waiting are functions for a COMMAND of a recording, whose process is $u: held waits until that holds a file called
// gone, stopped until the last process has stopped. How long that takes is for tests that judge by time.
const waiting = `held() { until ls -l /proc/$u/fd | grep -qE '(/gone|/memfd:program)( .deleted.)?$'; do sleep 0.01; ` +
	`done; }; ` +
	`stopped() { until grep -q ^State:.T /proc/$!/status; do sleep 0.01; done; }; ` + ofRecorder

// counting is a command that runs a program, and goes on when its file is held.
const counting = "%s @20 & held; stopped; kill -CONT $!; wait; "

// files are the regular files below a folder, with their paths in it.
func files(t *testing.T, folder string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			paths = append(paths, strings.TrimPrefix(path, folder+"/"))
		}
		if os.IsNotExist(err) {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

var leaves = regexp.MustCompile(`;main;(plain_\w+;)*plain_leaf 20\n`)

// TestNamesSurvive records programs that are not at their paths any more when names are looked up. perf record's cache
// has them, for other readers, too.
func TestNamesSurvive(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "chroot")
	static, plain := programs.Build(t, "plain", "-g0", "-static"), programs.Build(t, "plain", "-g0")
	for _, c := range []struct{ name, program, script, at string }{
		{"of a chroot", static, "mkdir -p root/bin; cp %s root/bin/gone; " + fmt.Sprintf(counting, "chroot root /bin/gone"),
			"bin/gone"},
		{"removed", plain, "cp %s gone; " + fmt.Sprintf(counting, "./gone") + "rm gone", "DIR/gone"},
		{"removed while it runs", plain, "cp %s gone; ./gone @20 & held; stopped; rm gone; kill -CONT $!; wait", "DIR/gone"},
		{"replaced", plain, "cp %s gone; " + fmt.Sprintf(counting, "./gone") + "cp /bin/true new; mv new gone", "DIR/gone"},
	} {
		for _, option := range []string{"--sandbox", "--no-sandbox"} {
			t.Run(c.name+" "+option, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				r := survivor{t, dir}
				e := r.record(option, "--", "sh", "-c", waiting+fmt.Sprintf(c.script, c.program))
				cache := filepath.Join(dir, ".debug")
				if said := "another root: 1 kept in " + cache; e.status != 0 || !strings.Contains(e.stderr, said) {
					t.Fatalf("status %d, not said: %s\n%s", e.status, said, e.stderr)
				}
				id := buildIDOf(t, c.program)
				at := strings.Replace(c.at, "DIR", strings.TrimPrefix(dir, "/"), 1) + "/" + id + "/elf"
				if got := files(t, cache); !slices.Equal(got, []string{at}) {
					t.Errorf("the cache has %q, want %q", got, at)
				}
				link := filepath.Join(cache, ".build-id", id[:2], id[2:])
				if target, err := os.Readlink(link); err != nil || target != "../../"+filepath.Dir(at) {
					t.Errorf("%s leads to %q, %v", link, target, err)
				}
				if st, err := os.Stat(filepath.Join(link, "elf")); err != nil || st.Mode() != 0o600 {
					t.Errorf("%v, %v", st, err)
				}
				for _, name := range []string{"root", "gone"} {
					if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
				r.hasNames(option)
				r.hasNamesInPerf()
			})
		}
	}
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		r := survivor{t, t.TempDir()}
		e := r.record("--", "sh", "-c", waiting+fmt.Sprintf(counting, memfdOf(t, plain)))
		at := "memfd:program/" + buildIDOf(t, plain) + "/elf"
		if got := files(t, filepath.Join(r.dir, ".debug")); !slices.Equal(got, []string{at}) {
			t.Errorf("the cache has %q, want %q\n%s", got, at, e.stderr)
		}
		r.hasNames("--sandbox")
	})
}

// A survivor records in a folder that is its home, too.
type survivor struct {
	*testing.T
	dir string
}

func (r survivor) run(args ...string) ended {
	r.Helper()
	home := func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), noPerfConfig, "HOME="+r.dir) }
	return start(r, r.dir, home, args...).finish(r, 2*time.Minute)
}

func (r survivor) record(args ...string) ended {
	r.Helper()
	return r.run(slices.Concat([]string{"record", "--stack-size", "8192"}, programs.Faults(), args)...)
}

// hasNames looks the names up: with nothing there but the cache, and with another root.
func (r survivor) hasNames(option string) {
	r.Helper()
	for _, more := range [][]string{nil, {"--symfs", r.TempDir()}} {
		e := r.run(slices.Concat([]string{"convert", "perf.data", "-o", "out.folded", "--no-inline", option}, more)...)
		folded, err := os.ReadFile(filepath.Join(r.dir, "out.folded"))
		if err != nil || !leaves.Match(folded) {
			r.Errorf("%q: no names, %v\n%s\n%s", more, err, folded, e.stderr)
		}
	}
	if e := r.run("report", "perf.data", option); !strings.Contains(e.stdout, "plain_leaf") {
		r.Errorf("report: no names\n%s\n%s", e.stdout, e.stderr)
	}
}

// hasNamesInPerf does so by perf, if it is there.
func (r survivor) hasNamesInPerf() {
	r.Helper()
	if _, err := exec.LookPath("perf"); err != nil {
		return
	}
	cmd := exec.Command("perf", "script", "-i", "perf.data", "-F", "ip,sym", "--kallsyms", os.DevNull)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), noPerfConfig, "HOME="+r.dir)
	if out, err := cmd.Output(); strings.Count(string(out), " plain_leaf\n") != counted {
		r.Errorf("perf script: no names, %v\n%s", err, out)
	}
}

func buildIDOf(t *testing.T, path string) string {
	t.Helper()
	id := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(output(t, "", "readelf", "-n", path))
	if id == nil {
		t.Fatalf("%s has no build ID", path)
	}
	return id[1]
}

// TestNamesThatAreNotKept records what there is nothing to keep of, or is not to be kept.
func TestNamesThatAreNotKept(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "objcopy", "truncate")
	plain := programs.Build(t, "plain", "-g0")
	removed := waiting + "cp %[1]s gone; %[2]s; " + fmt.Sprintf(counting, "./gone") + "rm gone"
	for _, c := range []struct {
		name, script string
		args         []string
		says         string
	}{
		{"at its path", waiting + "cp %[1]s gone; " + fmt.Sprintf(counting, "./gone"), nil, ""},
		{"the same build is at its path", strings.Replace(removed, "rm gone", "cp %[1]s new; mv new gone", 1), nil, ""},
		{"turned off", removed, []string{"--no-buildid-cache"}, ""},
		{"turned off as in perf", removed, []string{"-N"}, ""},
		{"a pipe", removed, []string{"-o", "-"}, ""},
		{"names are in the output", removed, []string{"-o", "out.folded"}, ""},
		{"without a build ID",
			strings.Replace(removed, "%[2]s", "objcopy --remove-section=.note.gnu.build-id gone", 1), nil,
			"not kept: 1 without a build ID (gone)"},
		{"too large", strings.Replace(removed, "%[2]s", "truncate -s 65M gone", 1), nil,
			"not kept: 1 larger than 64 MiB (gone)"},
		{"a file in its way",
			strings.Replace(removed, "rm gone", "rm gone; mkdir -p .debug; >.debug/$(echo $PWD | cut -d/ -f2)", 1), nil,
			"not kept: 1 that could not be written (not a directory) (gone)"},
		{"it cannot be trusted", strings.Replace(removed, "rm gone", "rm gone; mkdir -m 777 .debug", 1), nil,
			"not kept: 1 that could not be written (DIR/.debug: everybody may write the directory"},
		{"a link of somebody else's",
			strings.Replace(removed, "rm gone", "rm gone; mkdir there; ln -s there .debug; "+
				"chown -h 65534 .debug", 1), nil,
			`not kept: 1 that could not be written (DIR/.debug: ".debug" is a link that belongs`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := survivor{t, t.TempDir()}
			e := r.record(append(c.args, "--", "sh", "-c", fmt.Sprintf(c.script, plain, ":"))...)
			said := strings.Contains(e.stderr, "another root")
			if want := strings.ReplaceAll(c.says, "DIR", r.dir); e.status != 0 || said != (want != "") ||
				!strings.Contains(e.stderr, want) {
				t.Errorf("status %d, want %q:\n%s", e.status, want, e.stderr)
			}
			for _, path := range files(t, r.dir) {
				if strings.HasSuffix(path, "/elf") {
					t.Errorf("%s was written", path)
				}
			}
		})
	}
}

// TestNamesOfPieces writes a recording to several files. What is gone when one is complete is kept.
func TestNamesOfPieces(t *testing.T) {
	t.Parallel()
	needRoot(t)
	plain := programs.Build(t, "plain", "-g0")
	for _, options := range [][]string{{"--switch-output"}, {"--last", "10m"}} {
		t.Run(options[0], func(t *testing.T) {
			t.Parallel()
			r := survivor{t, t.TempDir()}
			// The cache has it before the recording ends. The first of the signals may come before the samples are read.
			script := waiting + fmt.Sprintf("cp %s gone; ", plain) + fmt.Sprintf(counting, "./gone") + "rm gone; " +
				"until find .debug -name elf 2>/dev/null | grep -q .; do kill -USR2 $u; sleep 0.1; done"
			e := r.record(append(options, "--", "sh", "-c", script)...)
			if e.status != 0 || !strings.Contains(e.stderr, "another root: 1 kept in") {
				t.Errorf("status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

// TestCapabilitiesCopyNothing records as a user who may look into every process by the capabilities of the program's
// file. Only files that this user could read without them are kept.
func TestCapabilitiesCopyNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "setpriv", "chroot", "pgrep")
	program, plain := capable(t), programs.Build(t, "plain", "-g0")
	static := programs.Build(t, "plain", "-g0", "-static")
	const (
		other = "setpriv --reuid 65533 --regid 65533 --clear-groups "
		// Whose process it is, is remembered for a moment: the one that counts is never another user's.
		own = "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c './gone @20; :' & " +
			"until p=$(pgrep -P $!); do sleep 0.01; done; "
	)
	for _, c := range []struct {
		name, prepare, run, after string
		kept                      bool
	}{
		{"own, removed", "cp PLAIN gone; chown 65534 gone", "own ./gone", "rm gone", true},
		{"another user's, removed", "cp PLAIN gone; chown 65533 gone", other + "./gone", "rm gone", false},
		{"another user's in memory", ":", other + memfdOf(t, plain), ":", false},
		{"of a chroot", "mkdir -p root; cp STATIC root/gone", "chroot root /gone", ":", true},
		{"of a chroot that is hidden", "mkdir -m 700 hidden; mkdir hidden/root; cp STATIC hidden/root/gone",
			"chroot hidden/root /gone", ":", false},
		{"of a chroot, for others to execute only", "mkdir -p root; cp STATIC root/gone; chmod 711 root/gone",
			"chroot root /gone", ":", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := nobodysDirectory(t)
			script := filepath.Join(dir, "run")
			// Root runs it beside the recording, which ends when it does.
			runs := fmt.Sprintf(counting, c.run)
			if c.run == "own ./gone" {
				runs = own + "held; until grep -q ^State:.T /proc/$p/status; do sleep 0.01; done; kill -CONT $p; wait; "
			}
			text := "cd " + dir + "; read RECORDER <begin; " + strings.Replace(waiting, ofRecorder, "export u=$RECORDER; ", 1) +
				strings.NewReplacer("PLAIN", plain, "STATIC", static).Replace(c.prepare) + "; " +
				runs + c.after + "; echo >end"
			if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			output(t, dir, "mkfifo", "-m", "666", "begin", "end")
			beside := exec.Command("sh", script)
			if err := programs.StartTied(t, beside); err != nil {
				t.Fatal(err)
			}
			defer beside.Wait()
			defer beside.Process.Kill()
			as := func(cmd *exec.Cmd) {
				cmd.Path, cmd.Args[0] = program, program
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
				cmd.Env = confined(dir)
			}
			pid := strconv.Itoa(beside.Process.Pid)
			e := start(t, dir, as, slices.Concat([]string{"record", "-p", pid, "--stack-size", "8192"}, programs.Faults(),
				[]string{"--", "sh", "-c", ofRecorder + "echo $u >begin; read x <end"})...).finish(t, 2*time.Minute)
			kept := slices.ContainsFunc(files(t, filepath.Join(dir, ".debug")), func(path string) bool {
				return strings.Contains(path, "gone/") || strings.HasPrefix(path, "memfd:program/")
			})
			told := strings.Contains(e.stderr, "that you may not read (")
			if e.status != 0 || kept != c.kept || told == c.kept {
				t.Errorf("status %d, kept: %v\n%s", e.status, kept, e.stderr)
			}
		})
	}
}
