package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/format/export"
	"unspool/testdata/lane"
)

// A stranger may have put something in the place of an output: the rules are those of package output.

// daemon is a user with a private group, as distributions have it.
const daemon = 1

// runner is who runs unspool.
type runner struct {
	name string
	uid  uint32
	sudo bool // uid asked for it; the process is root's
}

// user is who its files belong to.
func (r runner) user() int { return int(r.uid) }

var runners = []runner{{"root", 0, false}, {"user", daemon, false}, {"sudo", daemon, true}}

// stage is a directory that every user can reach, with the program, two recordings and places for outputs.
type stage struct {
	t    testing.TB
	dir  string
	as   runner
	data string // a recording
}

// newStage makes one, with a directory of the runner's ("home"), one of the stranger's ("theirs") and one
// that everybody may write ("sticky"), as /tmp.
func newStage(t *testing.T, as runner) *stage {
	t.Helper()
	data := halvesRecording(t)
	dir, err := os.MkdirTemp("", "unspool-outputs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &stage{t: t, dir: dir, as: as, data: filepath.Join(dir, "in.data")}
	s.must(os.Chmod(dir, 0o755))
	copyFile(t, data, s.data)
	s.must(syscall.Link(programForAll(t), s.path("unspool")))
	s.folder("home", 0o755, as.user())
	s.folder("theirs", 0o755, nobody)
	s.folder("sticky", 0o1777, 0)
	s.folder("tmp", 0o1777, 0)
	return s
}

// publicProgram is a copy of the program that every user may run, made once. Stages have links to it.
var publicProgram struct {
	sync.Once
	path string
}

func programForAll(t *testing.T) string {
	t.Helper()
	publicProgram.Do(func() {
		publicProgram.path = binary + "-public"
		copyFile(t, binary, publicProgram.path)
	})
	return publicProgram.path
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) folder(name string, mode uint32, uid int) {
	s.t.Helper()
	s.must(os.Mkdir(s.path(name), 0o700))
	s.must(os.Chown(s.path(name), uid, uid))
	s.must(unix.Chmod(s.path(name), mode))
}

func (s *stage) file(name, text string, uid int) {
	s.t.Helper()
	s.must(os.WriteFile(s.path(name), []byte(text), 0o600))
	s.must(os.Chown(s.path(name), uid, uid))
}

func (s *stage) link(target, name string, uid int) {
	s.t.Helper()
	s.must(os.Symlink(target, s.path(name)))
	s.must(os.Lchown(s.path(name), uid, uid))
}

// run runs unspool as the runner.
func (s *stage) run(change func(*exec.Cmd), args ...string) ended {
	s.t.Helper()
	return start(s.t, s.dir, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args[0] = s.path("unspool"), "unspool"
		cmd.Env = append(confined(s.path("tmp")), "SUDO_UID=", "SUDO_GID=")
		id := strconv.Itoa(s.as.user())
		if s.as.sudo {
			cmd.Env = append(cmd.Env, "SUDO_UID="+id, "SUDO_GID="+id)
		} else {
			user := &syscall.Credential{Uid: s.as.uid, Gid: s.as.uid}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		}
		if change != nil {
			change(cmd)
		}
	}, args...).finish(s.t, time.Minute)
}

// all is what is on the stage, with what must not change.
func (s *stage) all() (text string) {
	s.t.Helper()
	s.must(filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		content := ""
		switch {
		case e.Type() == fs.ModeSymlink:
			content, _ = os.Readlink(path)
		case e.Type().IsRegular() && st.Size < 100:
			content = string(mustRead(s.t, path))
		}
		text += fmt.Sprintf("%s %o %d %d %d %d %q\n", path, st.Mode, st.Uid, st.Gid, st.Ino, st.Size, content)
		return nil
	}))
	return text
}

// result checks that an output is there, complete and its owner's alone.
func (s *stage) result(name string) {
	s.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(s.path(name), &st); err != nil {
		s.t.Error(err)
		return
	}
	if st.Mode != unix.S_IFREG|0o600 || st.Uid != s.as.uid || st.Gid != s.as.uid || st.Size < 20 {
		s.t.Errorf("%s: mode %o, uid %d, gid %d, %d bytes", name, st.Mode, st.Uid, st.Gid, st.Size)
	}
}

// nothingHidden checks that no temporary file was left.
func (s *stage) nothingHidden() {
	s.t.Helper()
	for _, pattern := range []string{"*/.*", "tmp/*"} {
		if left, _ := filepath.Glob(s.path(pattern)); left != nil {
			s.t.Errorf("left: %v", left)
		}
	}
}

// written is a kind of output.
type written struct {
	name string
	file string // what it is called
	args func(s *stage, path string) []string

	// old means that the file is there, and is kept as .old; beside is what is written beside it meanwhile.
	// Then these are what is in the way.
	old    bool
	beside string
	alike  bool // it is written as others are
}

// outputs are all that there are.
func outputs() (all []written) {
	convert := func(more ...string) func(*stage, string) []string {
		return func(s *stage, path string) []string {
			return slices.Concat([]string{"convert", "-q", s.data, "-o", path}, more)
		}
	}
	record := func(more ...string) func(*stage, string) []string {
		return func(_ *stage, path string) []string {
			return slices.Concat([]string{"record", "-q", "-o", path}, more, []string{"--", "true"})
		}
	}
	all = []written{
		{name: "record", file: "v.data", args: record()},
		{name: "record -z", file: "v.data", args: record("-z"), alike: true},
		{name: "record, .old", file: "v.data", args: record(), old: true},
		{name: "record -o v.html", file: "v.html", args: record()},
		{name: "record -o v.html, recording", file: "v.html", args: record(), beside: ".perf.data"},
		{name: "record --stats", file: "v.json", args: func(s *stage, path string) []string {
			return []string{"record", "-q", "-o", "/dev/null", "--stats", path, "--", "true"}
		}},
		{name: "convert, .old", file: "v.data", args: convert(), old: true},
		{name: "convert -z", file: "v.data", args: convert("-z"), alike: true},
		{name: "convert --stats", file: "v.json", args: func(s *stage, path string) []string {
			return []string{"convert", "-q", s.data, "-o", "/dev/null", "--stats", path}
		}},
		{name: "report --html, difference", file: "v.html", args: func(s *stage, path string) []string {
			return []string{"report", "--html", path, s.data, s.data}
		}},
	}
	for _, f := range export.Formats() {
		for _, ending := range f.Endings {
			all = append(all, written{name: "convert to " + ending, file: "v" + ending, args: convert(), alike: true})
		}
	}
	return all
}

// attack is what the stranger puts where an output shall go.
type attack struct {
	name string
	// put puts it there and returns the path to name. It has the names of the output and of what is written
	// for it.
	put  func(s *stage, file, at string) string
	says string
	path bool // it is about the path, not about its end
}

var attacks = []attack{
	{"link to a file", func(s *stage, file, at string) string {
		s.link(s.path("home/target"), "sticky/"+at, nobody)
		return s.path("sticky/" + file)
	}, "link that belongs to uid 65534", false},
	{"dangling link", func(s *stage, file, at string) string {
		s.link(s.path("home/missing"), "sticky/"+at, nobody)
		return s.path("sticky/" + file)
	}, "link that belongs to uid 65534", false},
	{"empty file", func(s *stage, file, at string) string {
		s.file("sticky/"+at, "", nobody)
		s.must(os.Chmod(s.path("sticky/"+at), 0o666))
		return s.path("sticky/" + file)
	}, "belongs to uid 65534", false},
	{"file", func(s *stage, file, at string) string {
		s.file("sticky/"+at, "theirs", nobody)
		s.must(os.Chmod(s.path("sticky/"+at), 0o666))
		return s.path("sticky/" + file)
	}, "belongs to uid 65534", false},
	{"FIFO", func(s *stage, file, at string) string {
		s.must(unix.Mkfifo(s.path("sticky/"+at), 0o600))
		s.must(os.Chown(s.path("sticky/"+at), nobody, nobody))
		s.must(os.Chmod(s.path("sticky/"+at), 0o666))
		return s.path("sticky/" + file)
	}, "is a FIFO", false},
	{"directory of theirs", func(s *stage, file, _ string) string {
		return s.path("theirs/" + file)
	}, "the directory belongs to uid 65534|permission denied", true},
	{"link as the directory", func(s *stage, file, _ string) string {
		s.link(s.path("home"), "sticky/there", nobody)
		return s.path("sticky/there/" + file)
	}, `"there" is a link that belongs to uid 65534`, true},
}

// protectedSymlinks sets fs.protected_symlinks for a test: by default the kernel itself follows no stranger's
// link in a sticky directory.
func protectedSymlinks(t *testing.T, on bool) {
	t.Helper()
	const name = "/proc/sys/fs/protected_symlinks"
	before, err := os.ReadFile(name)
	if err != nil {
		t.Skip(err)
	}
	value := "0"
	if on {
		value = "1"
	}
	if err := os.WriteFile(name, []byte(value), 0); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.WriteFile(name, before, 0) })
}

func TestStrangersDoNotLeadOutputs(t *testing.T) {
	needRoot(t)
	halvesRecording(t)
	for _, protected := range []bool{false, true} {
		t.Run(fmt.Sprintf("protected_symlinks %v", protected), func(t *testing.T) {
			protectedSymlinks(t, protected)
			for _, as := range runners {
				t.Run(as.name, func(t *testing.T) {
					t.Parallel()
					s := newStage(t, as)
					s.file("home/target", "precious", as.user())
					for i, out := range outputs() {
						for _, a := range attacksOn(out, i, protected) {
							s.refuses(t, out, a)
						}
					}
				})
			}
		})
	}
}

// attacksOn are those that are tried on output number i.
func attacksOn(out written, i int, protected bool) (tried []attack) {
	for _, a := range attacks {
		// With links protected, only what is done with links can be another.
		link := strings.Contains(a.name, "link")
		if (link || !protected) && !(a.path && (out.old || out.beside != "")) {
			tried = append(tried, a)
		}
	}
	if protected || out.alike { // any of them shows whether it is opened as others are
		i %= len(tried)
		return tried[i : i+1]
	}
	return tried
}

// refuses runs unspool with an attack in place, and removes that.
func (s *stage) refuses(t *testing.T, out written, a attack) {
	at := out.file + out.beside
	if out.old {
		at += ".old"
	}
	name := out.name + ", " + a.name
	if out.old {
		s.file("sticky/"+out.file, "first", s.as.user())
	}
	path := a.put(s, out.file, at)
	before := s.all()
	e := s.run(nil, out.args(s, path)...)
	says := regexp.MustCompile("^unspool: .*(" + a.says + ")")
	if e.status != statusFailure || len(e.lines()) != 1 || !says.MatchString(e.stderr) {
		t.Errorf("%s: status %d\n%s", name, e.status, e.stderr)
	}
	if e.stdout != "" {
		t.Errorf("%s: printed %q", name, e.stdout)
	}
	if after := s.all(); after != before {
		t.Errorf("%s: there was\n%sand is\n%s", name, before, after)
		s.must(os.RemoveAll(s.path("home/missing")))
		s.file("home/target", "precious", s.as.user())
	}
	entries, err := os.ReadDir(s.path("sticky"))
	s.must(err)
	for _, e := range entries {
		s.must(os.RemoveAll(s.path("sticky/" + e.Name())))
	}
}

// recording needs a privilege where the kernel is strict.
func (s *stage) mayRun(out written) bool {
	level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	n, _ := strconv.Atoi(strings.TrimSpace(string(level)))
	return !strings.HasPrefix(out.name, "record") || s.as.name != "user" || err == nil && n <= 2
}

// Every output is its user's alone, and is written through a link of the user's own.
func TestOutputsAreTheUsers(t *testing.T) {
	needRoot(t)
	halvesRecording(t)
	for _, as := range runners {
		t.Run(as.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, as)
			s.folder("home/real", 0o755, as.user())
			for _, out := range outputs() {
				// Under sudo everything works as for others, and the files belong to the user.
				if out.beside == "" && (as.sudo || out.file == "v.data") && s.mayRun(out) {
					s.link("real/"+out.file, "home/"+out.file, as.user())
					s.writes(out)
					s.must(os.Remove(s.path("home/" + out.file)))
				}
			}
			s.nothingHidden()
		})
	}
}

// writes writes an output through a link and, if it is a recording, again.
func (s *stage) writes(out written) {
	s.t.Helper()
	lands := "home/real/" + out.file
	times := 1
	if out.file == "v.data" {
		times = 2
	}
	for i := range times {
		if e := s.run(nil, out.args(s, s.path("home/"+out.file))...); e.status != 0 || e.stderr != "" {
			s.t.Errorf("%s: status %d\n%s", out.name, e.status, e.stderr)
		}
		s.result(lands)
		if _, err := os.Lstat(s.path(lands + ".old")); (err == nil) != (i == 1) {
			s.t.Errorf("%s, number %d: kept as .old: %v", out.name, i+1, err)
		}
	}
	if st, err := os.Lstat(s.path("home/" + out.file)); err != nil || st.Mode().Type() != fs.ModeSymlink {
		s.t.Errorf("%s: the link: %v, %v", out.name, st, err)
	}
	s.must(os.Remove(s.path(lands)))
	os.Remove(s.path(lands + ".old"))
}

func TestDirectoriesOfGroups(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name     string
		as       runner
		uid, gid int // of the directory
		mode     uint32
		refused  string
	}{
		{"project of the user's group", runners[1], nobody, daemon, 0o2775, ""},
		{"private group, sudo", runners[2], daemon, daemon, 0o775, ""},
		{"private group of root, sudo", runners[2], daemon, 0, 0o775, ""},
		{"user's own, sudo", runners[2], daemon, nobody, 0o755, ""},
		{"sticky", runners[0], 0, nobody, 0o1777, ""},

		{"private group, without sudo", runners[0], 0, daemon, 0o775, "group 1 may write the directory"},
		{"user's own, without sudo", runners[0], daemon, daemon, 0o755, "the directory belongs to uid 1"},
		{"shared group, sudo", runners[2], daemon, nobody, 0o775, "group 65534 may write the directory"},
		{"everybody", runners[0], 0, 0, 0o777, "everybody may write the directory"},
		{"another's, sticky", runners[0], nobody, 0, 0o1777, "the directory belongs to uid 65534"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, c.as)
			account, group := string(mustRead(t, "/etc/passwd")), string(mustRead(t, "/etc/group"))
			if !strings.Contains(account, "\ndaemon:x:1:1:") || !strings.Contains(group, "\ndaemon:x:1:\n") {
				t.Skip("here is no user daemon with a private group")
			}
			s.folder("dir", 0o700, 0)
			s.must(os.Chown(s.path("dir"), c.uid, c.gid))
			s.must(unix.Chmod(s.path("dir"), c.mode))
			before := s.all()
			e := s.run(nil, "convert", "-q", s.data, "-o", s.path("dir/v.data"))
			if c.refused == "" {
				if e.status != 0 || e.stderr != "" {
					t.Errorf("status %d\n%s", e.status, e.stderr)
				}
				s.result("dir/v.data")
				s.nothingHidden()
				return
			}
			e.fails(t, statusFailure, c.refused)
			if after := s.all(); len(e.lines()) != 1 || after != before {
				t.Errorf("%s\nthere was\n%sand is\n%s", e.stderr, before, after)
			}
		})
	}
}

// A descriptor that the shell has opened is written to, whatever it is.
func TestOutputsOfTheShell(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, as := range runners[:2] {
		t.Run(as.name, func(t *testing.T) {
			s := newStage(t, as)
			want := s.run(nil, "convert", "-q", s.data, "-o", "-")
			if want.status != 0 || !strings.HasPrefix(want.stdout, "PERFILE2") {
				t.Fatalf("-o -: status %d, %.20q\n%s", want.status, want.stdout, want.stderr)
			}
			folded := s.run(nil, "convert", "-q", s.data, "-o", "-", "--format", "folded").stdout
			for _, path := range []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"} {
				e := s.run(nil, "convert", "-q", s.data, "-o", path)
				if e.status != 0 || e.stdout != want.stdout {
					t.Errorf("-o %s: status %d, %d bytes\n%s", path, e.status, len(e.stdout), e.stderr)
				}
			}
			e := s.run(nil, "convert", "-q", s.data, "-o", "/dev/null", "--stats", "/dev/stderr")
			if e.status != 0 || !strings.Contains(e.stderr, `"version"`) {
				t.Errorf("--stats /dev/stderr: %+v", e)
			}
			through, e := s.pipe("convert", "-q", s.data, "-o", "/dev/fd/3")
			if e.status != 0 || through != want.stdout {
				t.Errorf("-o /dev/fd/3: status %d, %d bytes\n%s", e.status, len(through), e.stderr)
			}
			s.shell(folded)
			s.nothingHidden()
		})
	}
	t.Run("closed", func(t *testing.T) {
		s := newStage(t, runners[0])
		for path, says := range map[string]string{
			"/dev/fd/77": "descriptor 77 is not open",
			"/dev/fd/0":  "descriptor 0 is open for reading only",
		} {
			s.run(nil, "convert", "-q", s.data, "-o", path).fails(t, statusFailure, says)
		}
	})
	t.Run("recording", func(t *testing.T) {
		s := newStage(t, runners[0])
		through, e := s.pipe("record", "-q", "-o", "/dev/fd/3", "--", "echo", "hello")
		if e.status != 0 || e.stdout != "hello\n" || !strings.HasPrefix(through, "PERFILE2") {
			t.Errorf("%+v, %.20q", e, through)
		}
		e = s.run(nil, "record", "-q", "-o", "/dev/stdout", "--", "echo", "hello")
		if e.status != 0 || e.stderr != "hello\n" || !strings.HasPrefix(e.stdout, "PERFILE2") {
			t.Errorf("status %d, %.20q, %q", e.status, e.stdout, e.stderr)
		}
		through, e = s.pipe("record", "-q", "-o", "/dev/fd/3", "--format", "flamegraph", "--", "true")
		if e.status != 0 || !strings.Contains(through, "<html") {
			t.Errorf("%+v, %.20q", e, through)
		}
		s.nothingHidden()
	})
}

// pipe runs unspool with a pipe as descriptor 3, and returns what came through.
func (s *stage) pipe(args ...string) (through string, e ended) {
	s.t.Helper()
	in, out, err := os.Pipe()
	s.must(err)
	defer in.Close()
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(in)
		read <- string(b)
	}()
	e = s.run(func(cmd *exec.Cmd) {
		cmd.ExtraFiles = []*os.File{out}
	}, args...)
	out.Close()
	return <-read, e
}

// shell has bash open the output, and a log that is added to.
func (s *stage) shell(want string) {
	need(s.t, "bash")
	s.file("home/log", "before\n", s.as.user())
	e := s.run(func(cmd *exec.Cmd) {
		cmd.Path, _ = exec.LookPath("bash")
		cmd.Args = []string{"bash", "-c", `convert() { ./unspool convert -q in.data --format folded -o "$1"; }
			convert >(cat >home/through; touch home/done)
			convert /dev/stdout >>home/log`}
	})
	if e.status != 0 || e.stderr != "" {
		s.t.Errorf("status %d\n%s", e.status, e.stderr)
	}
	lane.Eventually(s.t, "what goes through >(…)", func() bool {
		_, err := os.Stat(s.path("home/done"))
		return err == nil
	})
	if got := string(mustRead(s.t, s.path("home/through"))); got != want {
		s.t.Errorf("%d bytes went through >(…), not %d", len(got), len(want))
	}
	if got := string(mustRead(s.t, s.path("home/log"))); got != "before\n"+want {
		s.t.Errorf("the log has %d bytes", len(got))
	}
}

// A plain user's outputs go to /tmp, as everybody's.
func TestOutputInTmp(t *testing.T) {
	s := newStage(t, runners[1])
	path := fmt.Sprintf("/tmp/unspool-test-%d.data", os.Getpid())
	defer os.Remove(path)
	defer os.Remove(path + ".old")
	for range 2 {
		if e := s.run(nil, "convert", "-q", s.data, "-o", path); e.status != 0 || e.stderr != "" {
			t.Fatalf("status %d\n%s", e.status, e.stderr)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode != unix.S_IFREG|0o600 || st.Uid != daemon {
		t.Errorf("mode %o, uid %d, %v", st.Mode, st.Uid, err)
	}
}

// The places of outputs are found before COMMAND runs, which may be anybody's program, and stay the same.
func TestCommandDoesNotLeadOutputs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := newStage(t, runners[0])
	s.folder("dir", 0o755, 0)
	e := s.run(nil, "record", "-q", "-o", s.path("dir/v.html"), "--stats", s.path("dir/v.json"), "--",
		"sh", "-c", fmt.Sprintf("cd %s && mv dir moved && ln -s home dir && ls moved", s.dir))
	if e.status != 0 || e.stdout != "v.html.perf.data\n" || e.stderr != "" {
		t.Errorf("%+v", e)
	}
	s.result("moved/v.html")
	s.result("moved/v.json")
	for pattern, want := range map[string]int{"home/*": 0, "moved/*": 2} {
		if got, _ := filepath.Glob(s.path(pattern)); len(got) != want {
			t.Errorf("%v", got)
		}
	}
	s.nothingHidden()

	// What is put there meanwhile is refused, and the recording stays.
	html := s.path("moved/w.html")
	e = s.run(nil, "record", "-q", "-o", html, "--", "ln", "-s", "v.json", html)
	e.fails(t, statusFailure, `w.html has become a link: .*; the recording is in .*moved/w.html.perf.data`)
	s.result("moved/w.html.perf.data")
	s.nothingHidden()
}

// A recording that was kept because it could not be written in another format is not removed by the next
// attempt.
func TestEarlierRecordingStays(t *testing.T) {
	needRoot(t)
	s := newStage(t, runners[0])
	s.file("home/v.html.perf.data", "kept", 0)
	before := s.all()
	e := s.run(nil, "record", "-q", "-e", "cpu-clok", "-o", s.path("home/v.html"), "--", "true")
	e.fails(t, statusFailure, "cpu-clok")
	e = s.run(nil, "record", "-q", "-o", s.path("home/v.html"), "-p", "999999999")
	e.fails(t, statusFailure, "no (such )?process")
	if after := s.all(); after != before {
		t.Errorf("there was\n%sand is\n%s", before, after)
	}
}

// A recording that is killed is there under its own name, and nothing beside it.
func TestKilledRecordingHasItsName(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "perf.data")
	if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startToucher(t)
	r := start(t, dir, nil, append([]string{"record", "-q"}, faultsOf(p)...)...)
	p.touchUntil("samples", func() bool { return samplesIn(path) > 0 })
	r.Process.Kill()
	r.wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[1].Name() != "perf.data.old" {
		t.Errorf("%v, %v", entries, err)
	}
	if old := mustRead(t, path+".old"); string(old) != "first" {
		t.Errorf("%q", old)
	}
}

// The output's name may be as long as names can be.
func TestLongNames(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := newStage(t, runners[0])
	long := "home/" + strings.Repeat("x", 250) + ".html"
	for _, args := range [][]string{
		{"convert", "-q", s.data, "-o", s.path(long)},
		{"record", "-q", "-o", s.path(long), "--", "true"},
	} {
		if e := s.run(nil, args...); e.status != 0 || e.stderr != "" {
			t.Errorf("%s: status %d\n%s", args[0], e.status, e.stderr)
		}
		s.result(long)
	}
	s.nothingHidden()
}
