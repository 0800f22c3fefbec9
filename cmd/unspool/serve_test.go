package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/programs"
)

var servedAt = regexp.MustCompile(`^((http://\S+)/\?token=\S+) shows`)

// site is what report --http serves, with a browser that has opened the URL.
type site struct {
	*running
	base    string
	browser http.Client
}

// serve runs report --http.
func serve(t *testing.T, dir string, env []string, args ...string) *site {
	t.Helper()
	out, in := io.Pipe()
	s := &site{running: start(t, dir, func(c *exec.Cmd) {
		c.Stdout = in
		c.Env = append(os.Environ(), env...)
		if os.Geteuid() == 0 { // with groups to give up
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{0, 7}}}
		}
	}, args...)}
	go func() {
		s.wait()
		in.Close()
	}()
	told := make(chan []string, 1)
	go func() {
		line := make([]byte, 256)
		n, _ := out.Read(line)
		told <- servedAt.FindStringSubmatch(string(line[:n]))
		io.Copy(io.Discard, out) // pprof says there what it cannot disassemble
	}()
	var address []string
	select {
	case address = <-told:
	case <-time.After(time.Minute):
	}
	if address == nil {
		s.Process.Signal(syscall.SIGQUIT)
		t.Fatalf("no address was told: %s", s.wait().stderr)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.base, s.browser = address[2], http.Client{Jar: jar, Timeout: time.Minute}
	if status, _ := s.get(t, address[1][len(s.base):]); status != http.StatusOK {
		t.Fatalf("%s: status %d", address[1], status)
	}
	return s
}

func (s *site) get(t *testing.T, page string) (status int, body string) {
	t.Helper()
	answer, err := s.browser.Get(s.base + page)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// end ends it as a user does.
func (s *site) end(t *testing.T) ended {
	t.Helper()
	s.Process.Signal(syscall.SIGINT)
	e := s.finish(t, time.Minute)
	if e.status != 0 {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
	return e
}

// TestReportServes looks at the pages of report --http.
func TestReportServes(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	for _, args := range [][]string{
		{"report", "--http", data},
		{"report", "--http=127.0.0.1:0", data},
		{"report", "--http", "127.0.0.1:0", data},
	} {
		t.Run(strings.Join(args[:len(args)-1], " "), func(t *testing.T) {
			s := serve(t, t.TempDir(), nil, args...)
			status, page := s.get(t, "/ui/top")
			if status != http.StatusOK || !strings.Contains(page, "halves_mix") {
				t.Errorf("status %d, %d bytes", status, len(page))
			}
			s.end(t)
		})
	}
}

// user is one that no account needs to be there for, and who has called sudo in some of the tests.
const user = 65533

// bySudo is the environment of a command that sudo runs for user.
var bySudo = []string{fmt.Sprintf("SUDO_UID=%d", user), fmt.Sprintf("SUDO_GID=%d", user)}

// bySelf is the environment of what root runs without sudo.
var bySelf = []string{"SUDO_UID=", "SUDO_GID="}

// directoryOf makes a directory of a user's, which others can reach if the mode lets them.
func directoryOf(t *testing.T, uid int, mode os.FileMode) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "unspool-serve")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Skip(err)
	}
	return dir
}

// fileOf writes a file of a user's.
func fileOf(t *testing.T, uid int, mode os.FileMode, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Skip(err)
	}
	return path
}

// naming is the source of a program that says of its functions, called "ordinary", "f0", "f1", …, that they
// are in these files. Each of them takes page faults.
func naming(own string, files ...string) string {
	var b strings.Builder
	const body = "__attribute__((noinline)) void %s(void)" +
		" { for (int i = 0; i < 10; i++) { sink = sink * 3 + i; *page = 1; page += 4096; } }\n"
	fmt.Fprint(&b, "#include <stdlib.h>\nvolatile unsigned long sink;\nchar *volatile page;\n")
	fmt.Fprintf(&b, body, "ordinary")
	calls := "ordinary();"
	for i, file := range files {
		name := fmt.Sprintf("f%d", i)
		fmt.Fprintf(&b, "#line 1 %q\n"+body, file, name)
		calls += " " + name + "();"
	}
	fmt.Fprintf(&b, "#line 1 %q\nint main(void) { page = malloc(1 << 20); %s }\n", own, calls)
	return b.String()
}

// compileIn compiles a program of a user's where its source lies.
func compileIn(t *testing.T, uid int, source string) (program string) {
	t.Helper()
	need(t, "gcc")
	program = strings.TrimSuffix(source, ".c")
	cmd := exec.Command("gcc", "-g", "-O1", "-o", program, source)
	cmd.Dir = filepath.Dir(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if err := os.Chown(program, uid, uid); err != nil {
		t.Skip(err)
	}
	return program
}

// givenTo is a copy of a recording that a user owns and can reach: with sudo, it is read in the user's name.
func givenTo(t *testing.T, uid int, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fileOf(t, uid, 0o600, filepath.Join(directoryOf(t, uid, 0o700), filepath.Base(path)), string(content))
}

// asStranger runs a command of the shell as a user who is neither root nor the one who serves by sudo.
func asStranger(t *testing.T, command string) string {
	t.Helper()
	need(t, "bash")
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// TestServeReadsNoFilesForOthers serves as root what root has recorded of another user's program, whose
// debugging information names files that who is served may not read.
func TestServeReadsNoFilesForOthers(t *testing.T) {
	t.Parallel()
	theirs, held := directoryOf(t, nobody, 0o755), directoryOf(t, 0, 0o755)
	const rootsLine, usersLine = "correct horse battery staple", "int of_the_user;"
	rootOnly := fileOf(t, 0, 0o600, filepath.Join(held, "root.c"), rootsLine)
	userOnly := fileOf(t, user, 0o600, filepath.Join(held, "user.c"), usersLine)
	link, fifo := filepath.Join(theirs, "link.c"), filepath.Join(theirs, "fifo.c")
	if err := os.Symlink(userOnly, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	up := "../" + filepath.Base(held) + "/user.c"
	names := []string{rootOnly, userOnly, link, fifo, "/proc/self/cwd/user.c", up, theirs + "/./" + up}
	source := filepath.Join(theirs, "main.c")
	fileOf(t, nobody, 0o644, source, naming(source, names...))
	program := compileIn(t, nobody, source)
	data := record(t, append(programs.Faults(), "-q", "--", program)...).path
	data = givenTo(t, user, data)
	for _, c := range []struct {
		name string
		env  []string
		uid  int
	}{{"root", bySelf, nobody}, {"sudo", bySudo, user}} {
		t.Run(c.name, func(t *testing.T) {
			tmp := directoryOf(t, 0, 0o1777)
			env := slices.Concat(c.env, []string{"TMPDIR=" + tmp})
			s := serve(t, held, env, "report", "--http=127.0.0.1:0", data)
			s.dropped(t, c.uid)
			const all = "f=^(main|ordinary|f[0-9])$" // of the program: libc takes a while to disassemble
			pages := []string{
				"source?" + all, "disasm?" + all, "top", "flamegraph", "peek?" + all, "graph", "download",
			}
			for i := range names {
				pages = append(pages, fmt.Sprintf("source?f=^f%d$", i), fmt.Sprintf("disasm?f=^f%d$", i))
			}
			shown := false
			for _, page := range pages {
				_, body := s.get(t, "/ui/"+page)
				if strings.Contains(body, rootsLine) {
					t.Errorf("%s: what only root may read is in it", page)
				}
				shown = shown || strings.Contains(body, usersLine)
			}
			if shown != (c.uid == user) {
				t.Errorf("what only one user may read is shown to uid %d: %v", c.uid, shown)
			}
			_, body := s.get(t, "/ui/source?f=^ordinary$")
			if !strings.Contains(body, "void ordinary(void)") {
				t.Error("without the source of an ordinary function")
			}
			if made := namesIn(t, tmp); len(made) != 1 {
				t.Errorf("temporary files: %q", made)
			}
			s.shutToStrangers(t)
			e := s.end(t)
			want := fmt.Sprintf("%s: not shown: uid %d", rootOnly, c.uid)
			if strings.Count(e.stderr, want) != 1 {
				t.Errorf("not told once: %s\n%s", want, e.stderr)
			}
			if left := namesIn(t, tmp); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// dropped makes sure that each thread has become a user, for good.
func (s *site) dropped(t *testing.T, uid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", s.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%v, %v", threads, err)
	}
	id := fmt.Sprintf("\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid)
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		for _, want := range []string{
			"\nUid:" + id, "\nGid:" + id, "\nCapEff:\t0000000000000000\n", "\nCapPrm:\t0000000000000000\n",
			"\nNoNewPrivs:\t1\n",
		} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%s is without %q:\n%s", thread, want, status)
			}
		}
		if !regexp.MustCompile(`\nGroups:\s*\n`).Match(status) {
			t.Errorf("%s has groups:\n%s", thread, status)
		}
	}
}

// shutToStrangers asks as another user of the machine, who has only the address, and looks for the token in
// /proc.
func (s *site) shutToStrangers(t *testing.T) {
	t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{
		"/", "/ui/top", "/ui/source?f=.", "/ui/download", "/?token=", "/?token=AAAAAAAAAAAAAAAAAAAAAAAAAA",
	} {
		answer := asStranger(t, fmt.Sprintf("exec 3<>/dev/tcp/%s/%s; "+
			`printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3; cat <&3`, host, port, page))
		if !strings.HasPrefix(answer, "HTTP/1.0 403 ") {
			t.Errorf("%s: %.100q", page, answer)
		}
	}
	for _, look := range []string{"cat /proc/%d/environ", "ls /proc/%d/fd", "ls /proc/%d/cwd/"} {
		look = fmt.Sprintf(look, s.Process.Pid)
		if out := asStranger(t, look+" && echo done"); strings.Contains(out, "done\n") {
			t.Errorf("%s: %.100q", look, out)
		}
	}
}

// TestServeShowsTheSourceOfWhoCalledSudo has the user's program and its source where nobody else can reach
// them.
func TestServeShowsTheSourceOfWhoCalledSudo(t *testing.T) {
	t.Parallel()
	need(t, "objdump")
	own := directoryOf(t, user, 0o700)
	source := filepath.Join(own, "main.c")
	fileOf(t, user, 0o600, source, naming(source))
	data := record(t, append(programs.Faults(), "-q", "--", compileIn(t, user, source))...).path
	data = givenTo(t, user, data)
	for _, c := range []struct {
		name  string
		env   []string
		uid   int
		shown bool
	}{{"sudo", bySudo, user, true}, {"root", bySelf, nobody, false}} {
		t.Run(c.name, func(t *testing.T) {
			env := slices.Concat(c.env, []string{"TMPDIR=/tmp"})
			s := serve(t, t.TempDir(), env, "report", "--http", data)
			s.dropped(t, c.uid)
			_, body := s.get(t, "/ui/source?f=^ordinary$")
			text := strings.Contains(body, "void ordinary(void)")
			code := regexp.MustCompile(`: +add `).MatchString(body)
			if text != c.shown || code != c.shown {
				t.Errorf("source %v, machine code %v", text, code)
			}
			want := source + ": not shown: uid 65534, as which unspool serves, may not read it"
			if strings.Contains(s.end(t).stderr, want) == c.shown {
				t.Errorf("%q is told: %v", want, c.shown)
			}
		})
	}
}

// TestServeFailsWithRoot does not go on as root where it cannot become somebody else.
func TestServeFailsWithRoot(t *testing.T) {
	e := start(t, t.TempDir(), func(c *exec.Cmd) {
		c.Env = append(os.Environ(), "SUDO_UID=me")
	}, "report", "--http", halvesRecording(t)).finish(t, time.Minute)
	const why = `root's privileges cannot be given up: SUDO_UID="me" is not an ID`
	if e.status == 0 || e.stdout != "" || !strings.Contains(e.stderr, why) {
		t.Errorf("status %d: %s%s", e.status, e.stdout, e.stderr)
	}
}
