package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/testdata/recordings"
	"unspool/unwind/image/fusetest"
)

// TestReadingIsConfined looks at processes that wait for a recording to read.
func TestReadingIsConfined(t *testing.T) {
	t.Parallel()
	needRoot(t)
	recorded := output(t, "", binary, "convert", "-q", placed(t, "shapes"), "-o", "-") // as it comes through a pipe
	for _, c := range []struct {
		who  string
		uid  int
		env  []string
		want map[string]string
	}{
		{"root", 0, bySelf, map[string]string{"Uid": "0 0 0 0", "CapPrm": "0000000000000004"}}, // dac_read_search
		{"sudo", user, bySudo, map[string]string{
			"Uid": "65533 65533 65533 65533", "Gid": "65533 65533 65533 65533", "Groups": "",
			"CapPrm": "0000000000000000",
		}},
	} {
		for _, args := range [][]string{
			{"convert", "fifo", "-o", "out.perf.data"}, {"convert", "fifo", "-o", "out.folded"},
			{"report", "fifo"}, {"check", "fifo"}, {"report", "fifo", "fifo"},
		} {
			dir := directoryOf(t, c.uid, 0o755)
			if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
				t.Fatal(err)
			}
			r := start(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), c.env...) }, args...)
			writer := opensFIFO(t, filepath.Join(dir, "fifo"))
			for _, thread := range fieldsOf(t, r.Process.Pid) {
				want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": c.want["CapPrm"]}
				for name, value := range c.want {
					want[name] = value
				}
				for name, value := range want {
					if thread[name] != value {
						t.Errorf("%s by %s: a thread has %s %q, not %q", args[0], c.who, name, thread[name], value)
					}
				}
			}
			if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.Process.Pid)); err != nil ||
				strings.Contains(lineOf(string(limits), "Max data size"), "unlimited") {
				t.Errorf("%s by %s: no limit on memory, %v", args[0], c.who, err)
			}
			two := args[len(args)-2] == args[len(args)-1] // recordings; there is one
			if !two {
				writer.WriteString(recorded)
			}
			writer.Close()
			if e := r.finish(t, time.Minute); !two && e.status != 0 {
				t.Errorf("%v by %s: status %d\n%s", args, c.who, e.status, e.stderr)
			}
		}
	}
}

// opensFIFO waits until there is a reader of a FIFO.
func opensFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	var file *os.File
	lane.Eventually(t, "a reader of the FIFO", func() (opened bool) {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			file = os.NewFile(uintptr(fd), path)
		}
		return err == nil
	})
	return file
}

func lineOf(text, begins string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begins) {
			return line
		}
	}
	return ""
}

// TestReadingInTheUsersName has root own files that the user who called sudo may not read: they are refused
// as recordings, below --symfs, and as debug files.
func TestReadingInTheUsersName(t *testing.T) {
	t.Parallel()
	need(t, "objcopy")
	t.Run("by itself", func(t *testing.T) {
		t.Parallel()
		readInTheUsersName(t)
	})
	t.Run("by a process that opens files", func(t *testing.T) {
		t.Parallel()
		fusetest.Show(t, t.TempDir())
		readInTheUsersName(t)
	})
}

// placedFor is a recording that belongs to a user, with the folder and the programs in it.
func placedFor(t *testing.T, uid int, name string) (data string) {
	t.Helper()
	needRoot(t)
	data = placed(t, name)
	dir := filepath.Dir(data)
	for _, name := range append(namesIn(t, dir), ".") {
		if err := os.Chown(filepath.Join(dir, name), uid, uid); err != nil {
			t.Skip(err)
		}
	}
	return data
}

func readInTheUsersName(t *testing.T) {
	t.Helper()
	data := placedFor(t, user, "shapes")
	dir := filepath.Dir(data)
	program := filepath.Join(dir, "shapes")
	debug := filepath.Join(dir, ".debug", "shapes.debug")
	if err := os.Mkdir(filepath.Dir(debug), 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, dir, "objcopy", "--only-keep-debug", program, debug)
	output(t, dir, "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, program)
	const name = "shapes::Circle::area"
	moved := directoryOf(t, 0, 0o755) // for --symfs
	if err := os.MkdirAll(filepath.Join(moved, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	unstripped := filepath.Join(moved, program)
	copyFile(t, recordings.Program(t, "shapes"), unstripped)

	names := func(env []string, args ...string) bool {
		t.Helper()
		e := unspoolWith(t, env, dir, append(args, data, "-o", "-", "--format", "folded")...)
		if e.status != 0 {
			t.Fatalf("%v: status %d\n%s", args, e.status, e.stderr)
		}
		return strings.Contains(e.stdout, name)
	}
	for path, args := range map[string][]string{
		debug: {"convert", "-q"}, unstripped: {"convert", "-q", "--symfs", moved},
	} {
		other := debug
		if path == debug {
			other = unstripped
		}
		for _, hidden := range []bool{false, true} {
			mode := os.FileMode(0o644)
			if hidden {
				mode = 0o600
			}
			for file, mode := range map[string]os.FileMode{path: mode, other: 0o600} {
				if err := os.Chmod(file, mode); err != nil {
					t.Fatal(err)
				}
			}
			if got := names(bySudo, args...); got == hidden {
				t.Errorf("%s of mode %v, by sudo: the name is shown: %v", path, mode, got)
			}
			if !names(bySelf, args...) || !names(bySudo, append(args, "--no-sandbox")...) {
				t.Errorf("%s of mode %v: root does not show the name", path, mode)
			}
		}
	}

	fileOf(t, 0, 0o600, data, string(read(t, data)))
	for _, args := range [][]string{
		{"report", data}, {"convert", data, "-o", "x.data"}, {"convert", data, "-o", "x.html"}, {"check", data},
		{"compare", data}, {"report", data, data}, {"report", "--http", data},
	} {
		e := unspoolWith(t, bySudo, dir, args...)
		e.fails(t, statusFailure, "permission denied.*sudo.*uid 65533.*--no-sandbox")
	}
	if e := unspoolWith(t, bySelf, dir, "report", data); e.status != 0 {
		t.Errorf("root: %s", e.stderr)
	}
	if e := unspoolWith(t, bySudo, dir, "report", "--no-sandbox", data); e.status != 0 {
		t.Errorf("--no-sandbox: %s", e.stderr)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestOutputsWhereTheUserMayNot has sudo write where only root may.
func TestOutputsWhereTheUserMayNot(t *testing.T) {
	t.Parallel()
	dir := directoryOf(t, 0, 0o700)
	work := directoryOf(t, user, 0o755)
	command := []string{"--", programs.Build(t, "plain"), programs.Times(counted)}
	recorded := filepath.Join(work, "in.data")
	if e := unspoolWith(t, bySudo, work, slices.Concat([]string{"record", "-q", "-o", recorded}, programs.Faults(),
		command)...); e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	for _, name := range []string{"x.html", "x.folded", "x.perf.data", "x.pb.gz"} {
		out := filepath.Join(dir, name)
		for _, args := range [][]string{
			slices.Concat([]string{"record", "-q", "-o", out}, programs.Faults(), command),
			{"convert", "-q", recorded, "-o", out, "--stats", filepath.Join(dir, "stats.json")},
		} {
			if e := unspoolWith(t, bySudo, work, args...); e.status != 0 {
				t.Errorf("%v: status %d\n%s", args, e.status, e.stderr)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(out, &st); err != nil || st.Uid != user || st.Mode&0o777 != 0o600 || st.Size == 0 {
			t.Errorf("%s: uid %d, mode %o, %d bytes, %v", name, st.Uid, st.Mode, st.Size, err)
		}
	}
	e := unspoolWith(t, bySudo, work, "report", recorded, recorded, "--html", filepath.Join(dir, "two.html"))
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "two.html"), &st); e.status != 0 || err != nil || st.Uid != user ||
		st.Mode&0o777 != 0o600 || st.Size == 0 {
		t.Errorf("two.html: uid %d, mode %o, %d bytes, %v; %+v", st.Uid, st.Mode, st.Size, err, e)
	}
	for _, name := range namesIn(t, dir) {
		switch name {
		case "two.html", "x.html", "x.folded", "x.perf.data", "x.perf.data.old", "x.pb.gz", "stats.json":
		default:
			t.Errorf("left: %s", name)
		}
	}
}

// TestNamesOfCodeInAnotherNamespace has root's program write its perf map where only root can read it, in a
// file system that only its own processes see.
func TestNamesOfCodeInAnotherNamespace(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "node")
	programs.NeedMounts(t)
	// The source may be in /tmp, too.
	node := startAsked(t, t.TempDir(), "unshare", "-m", "sh", "-c", `text=$(cat "$0") && mount -t tmpfs none /tmp && `+
		`umask 077 && exec node `+atOnce+` --perf-basic-prof -e "$text" touch.js "$1"`, source(t, "touch.js"),
		strconv.Itoa(touched))
	for uid, env := range map[int][]string{0: bySelf, user: bySudo} {
		dir := directoryOf(t, uid, 0o755)
		r := start(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), env...) },
			slices.Concat([]string{"record", "-o", "out.folded", "-p", strconv.Itoa(node.Process.Pid)},
				programs.Faults())...)
		lane.Eventually(t, "samples", func() bool {
			node.next(t)
			return samplesIn(filepath.Join(dir, "out.folded.perf.data")) >= touched
		})
		r.Process.Signal(syscall.SIGINT)
		e := r.finish(t, time.Minute)
		if e.status != 0 || !strings.Contains(string(read(t, filepath.Join(dir, "out.folded"))), "JS:") {
			t.Errorf("%v: no names of generated code, status %d\n%s", env, e.status, e.stderr)
		}
	}
}

// TestNamesFromDebuginfodWhenConfined has a server send the program that was recorded.
func TestNamesFromDebuginfodWhenConfined(t *testing.T) {
	t.Parallel()
	data := placedFor(t, user, "shapes")
	dir := filepath.Dir(data)
	program := filepath.Join(dir, "shapes")
	id, content := buildID(t, program), read(t, program)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/buildid/"+id+"/executable" {
			w.Write(content)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	for _, c := range []struct {
		env []string
		uid int
	}{{bySelf, 0}, {bySudo, user}} {
		home := directoryOf(t, c.uid, 0o755)
		env := append(slices.Clone(c.env), "HOME="+home, "XDG_CACHE_HOME=", "DEBUGINFOD_CACHE_PATH=",
			"DEBUGINFOD_URLS="+server.URL)
		for range 2 { // from the server, and from the cache
			e := unspoolWith(t, env, dir, "convert", "-q", data, "-o", "-", "--format", "folded")
			if e.status != 0 || !strings.Contains(e.stdout, "shapes::Circle::area") {
				t.Errorf("uid %d: status %d\n%s", c.uid, e.status, e.stderr)
			}
			env = append(env, "DEBUGINFOD_URLS=http://127.0.0.1:1")
		}
		files, _ := filepath.Glob(filepath.Join(home, ".cache/debuginfod_client/*/executable"))
		if len(files) != 1 {
			t.Fatalf("uid %d: in the cache: %q", c.uid, files)
		}
		var st unix.Stat_t
		if err := unix.Stat(files[0], &st); err != nil || int(st.Uid) != c.uid || st.Mode&0o777 != 0o400 {
			t.Errorf("the file in the cache: uid %d, mode %o, %v", st.Uid, st.Mode, err)
		}
	}
}

// TestVerboseSaysHowReadingIsConfined asks for it with and without.
func TestVerboseSaysHowReadingIsConfined(t *testing.T) {
	t.Parallel()
	needRoot(t)
	data := placed(t, "shapes")
	dir := filepath.Dir(data)
	raw := placed(t, "raw")
	for _, command := range [][]string{{"report"}, {"check"}, {"convert", "-o", "out.folded"},
		{"compare"}} {
		data := data
		if command[0] == "compare" {
			data = raw // which has copies of stacks
		}
		for option, want := range map[string]string{
			"--sandbox": "confined: no new privileges, Landlock, ", "--no-sandbox": "unspool: not confined",
		} {
			args := append(slices.Clone(command), option, "-v", data)
			if e := unspoolWith(t, bySelf, dir, args...); e.status != 0 || !strings.Contains(e.stderr, want) {
				t.Errorf("%v: status %d, %q is not said:\n%s", args, e.status, want, e.stderr)
			}
		}
		if e := unspoolWith(t, bySelf, dir, append(slices.Clone(command), data)...); strings.Contains(e.stderr, "confined") {
			t.Errorf("%v: said without -v:\n%s", command, e.stderr)
		}
	}
}

// TestKernelsNamesBySudo looks for functions of the kernel, whose addresses are hidden from users: dd reads into pages
// that it has not touched, and so the kernel takes a page fault for each.
func TestKernelsNamesBySudo(t *testing.T) {
	t.Parallel()
	dir := directoryOf(t, user, 0o755)
	data := filepath.Join(dir, "perf.data")
	e := unspoolWith(t, bySudo, dir, "record", "-q", "-e", "page-faults:k", "-c", "1", "-o", data, "--", "dd",
		"if=/dev/zero", "of=/dev/null", "bs=64k", "count=1")
	if e.status != 0 {
		t.Fatal(e.stderr)
	}
	names := func(args ...string) bool {
		e := unspoolWith(t, bySudo, dir, append([]string{"report"}, append(args, data)...)...)
		if e.status != 0 {
			t.Fatal(e.stderr)
		}
		return strings.Contains(e.stdout, "vfs_read") && !strings.Contains(e.stdout, "kernel: no names")
	}
	if !names("--no-sandbox") {
		t.Skip("the kernel's names are hidden from root, too")
	}
	if !names() {
		t.Error("no names of the kernel's functions")
	}
}
