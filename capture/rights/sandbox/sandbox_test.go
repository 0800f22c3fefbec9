package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside is set in a process that confines itself and tells what it still can do; its value is the PID of a
// process to attack.
const inside = "UNSPOOL_SANDBOX_VICTIM"

// confinedAs says as what such a process is confined.
const confinedAs = "UNSPOOL_SANDBOX_AS"

// without is set where the kernel is to answer such a process as one without Landlock does.
const without = "UNSPOOL_SANDBOX_NO_LANDLOCK"

// confinements are the ways to be confined, by name.
var confinements = map[string]func() *Report{
	"recording": Confine,
	"reading":   func() *Report { return confineReader(Reading{Folders: []string{"folder"}}) },
	"fetching":  func() *Report { return confineReader(Reading{Folders: []string{"folder"}, Fetches: true}) },
	"running": func() *Report {
		return confineReader(Reading{Folders: []string{"folder"}, Programs: []string{"cat"}})
	},
}

func confineReader(r Reading) *Report {
	if err := BecomeUser(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return ConfineReader(r)
}

func TestMain(m *testing.M) {
	if victim, err := strconv.Atoi(os.Getenv(inside)); err == nil {
		if os.Getenv(without) != "" {
			if err := withoutLandlock(); err != nil {
				fmt.Println("SKIP", err)
				os.Exit(0)
			}
		}
		os.Exit(attack(victim))
	}
	os.Exit(m.Run())
}

// withoutLandlock has the kernel say that it knows no Landlock.
func withoutLandlock() error {
	if err := noNewPrivileges(); err != nil {
		return err
	}
	return install([]unix.SockFilter{
		load(dataNumber),
		jump(unix.BPF_JEQ, unix.SYS_LANDLOCK_CREATE_RULESET, 0, 1), refuse(unix.ENOSYS),
		statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW),
	})
}

// attempts are what a process that was taken over might try. Each returns nil if it succeeds.
func attempts(victim int, word *uint64) map[string]func() error {
	local := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(word)), Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(word)), Len: 8}}
	opens := func(path string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(path, flags, 0o600)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	errnoOf := func(call, a, b, c uintptr) func() error {
		return func() error {
			if _, _, errno := unix.RawSyscall(call, a, b, c); errno != 0 {
				return errno
			}
			return nil
		}
	}
	return map[string]func() error{
		"exec":                func() error { return unix.Exec("/bin/true", []string{"true"}, nil) },
		"start a process":     func() error { return exec.Command("/bin/true").Run() },
		"fork":                errnoOf(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0),
		"socket":              socket(unix.AF_INET),
		"connect":             func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err },
		"read /etc/shadow":    opens("/etc/shadow", unix.O_RDONLY),
		"read /etc/passwd":    opens("/etc/passwd", unix.O_RDONLY),
		"read a directory":    opens("/", unix.O_RDONLY|unix.O_DIRECTORY),
		"write in a folder":   opens("folder/new", unix.O_WRONLY|unix.O_CREAT),
		"truncate by reading": opens("own", unix.O_RDONLY|unix.O_TRUNC),
		"change a mode":       func() error { return unix.Chmod("own", 0o777) },
		"change a time":       func() error { return os.Chtimes("own", time.Now(), time.Now()) },
		"change an attribute": func() error { return unix.Setxattr("own", "user.x", []byte("x"), 0) },
		"rename":              func() error { return unix.Rename("moved", "other") },
		"link":                func() error { return unix.Link("own", "folder/linked") },
		"leave the folder":    func() error { return unix.Rename("folder/old", "out") },
		"a local socket":      socket(unix.AF_UNIX),
		"listen":              func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
		"run cat":             func() error { return exec.Command("cat", "own").Run() },
		"write a file":        opens("/tmp/unspool-sandbox-test", unix.O_WRONLY|unix.O_CREAT),
		"write beside":        opens("unspool-sandbox-test", unix.O_WRONLY|unix.O_CREAT),
		"write to /dev/null":  opens("/dev/null", unix.O_WRONLY),
		"unlink":              func() error { return unix.Unlink("removed") },
		"attach":              func() error { return unix.PtraceAttach(victim) },
		"seize":               errnoOf(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(victim), 0),
		"read memory":         func() error { _, err := unix.ProcessVMReadv(victim, local, remote, 0); return err },
		"open memory":         opens(fmt.Sprintf("/proc/%d/mem", victim), unix.O_RDONLY),
		"write memory": func() error {
			_, err := unix.ProcessVMWritev(victim, local, remote, 0)
			return err
		},
		"kill":          func() error { return unix.Kill(victim, unix.SIGKILL) },
		"kill a thread": func() error { return unix.Tgkill(victim, victim, unix.SIGKILL) },
		"tell of input": func() error { _, err := unix.FcntlInt(0, unix.F_SETOWN, victim); return err },
		"choose a signal for input": func() error {
			_, err := unix.FcntlInt(0, unix.F_SETSIG, int(unix.SIGKILL))
			return err
		},
		"perf event": func() error {
			a := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			_, err := unix.PerfEventOpen(&a, 0, -1, -1, 0)
			return err
		},
		"executable memory": func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
			return err
		},
		"root again": func() error {
			if os.Getuid() == 0 {
				return unix.EPERM // a user namespace without nobody
			}
			return syscall.Setresuid(0, 0, 0)
		},
		"x32":      errnoOf(x32Bit|unix.SYS_GETPID, 0, 0, 0),
		"io_uring": errnoOf(unix.SYS_IO_URING_SETUP, 1, 0, 0),
		"mount":    func() error { return unix.Mount("none", "/mnt", "tmpfs", 0, "") },
		"bpf":      errnoOf(unix.SYS_BPF, 0, 0, 0),
	}
}

// attack confines the process and prints which attempts still succeed, on several threads.
func attack(victim int) (status int) {
	word := uint64(0)
	as := os.Getenv(confinedAs)
	report := confinements[as]()
	fmt.Println(report)
	landlocked := slices.Contains(report.InForce, "Landlock")
	incapable := slices.ContainsFunc(report.InForce, func(is string) bool {
		return strings.HasPrefix(is, "no capabilities") // a program with cgo cannot give them up
	})
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		wait.Go(func() {
			runtime.LockOSThread()
			for name, try := range attempts(victim, &word) {
				if as == "running" && (name == "fork" || name == "exec" && !landlocked) {
					continue // it may, and there would be two of us, or none
				}
				if name == "open memory" && !incapable {
					continue
				}
				if err := try(); err == nil {
					mu.Lock()
					fmt.Println("CAN", name)
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	// What a recording needs is left.
	for range 100 {
		wait.Go(func() { time.Sleep(time.Millisecond); _ = make([]byte, 1<<20) })
	}
	wait.Wait()
	runtime.GC()
	fmt.Println("done")
	return 0
}

// TestConfined asks a confined process what it can do, on this kernel and on one without Landlock: there the
// filter and the user alone refuse, and what is missing is said.
func TestConfined(t *testing.T) {
	for _, c := range []struct {
		as            string
		sudo          string // the user who called sudo
		noLandlock    bool
		can, canAlone []string // canAlone only without Landlock
	}{
		{as: "recording"},
		{as: "reading", sudo: "65533",
			can:      []string{"read /etc/passwd", "read a directory", "write in a folder", "write to /dev/null"},
			canAlone: []string{"write a file", "write beside", "unlink", "rename", "leave the folder"}},
		{as: "reading", sudo: "65534",
			can:      []string{"read /etc/passwd", "read a directory", "write in a folder", "write to /dev/null"},
			canAlone: []string{"write a file", "write beside", "unlink", "rename", "leave the folder"}},
		{as: "reading",
			can: []string{"read /etc/passwd", "read a directory", "write in a folder", "write to /dev/null",
				"read /etc/shadow"},
			canAlone: []string{"write a file", "write beside", "unlink", "rename", "leave the folder"}},
		{as: "fetching", sudo: "65533",
			can: []string{"read /etc/passwd", "read a directory", "write in a folder", "write to /dev/null",
				"socket"},
			canAlone: []string{"write a file", "write beside", "unlink", "rename", "leave the folder"}},
		{as: "running", sudo: "65533",
			can: []string{"read /etc/passwd", "read a directory", "write in a folder", "write to /dev/null",
				"executable memory", "run cat"},
			canAlone: []string{"write a file", "write beside", "unlink", "rename", "leave the folder", "link",
				"start a process"}},
	} {
		for _, landlock := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s by %q, Landlock %v", c.as, c.sudo, landlock), func(t *testing.T) {
				if os.Geteuid() != 0 && c.as != "recording" {
					t.Skip("not root")
				}
				testConfined(t, c.as, c.sudo, landlock, c.can, c.canAlone)
			})
		}
	}
}

func testConfined(t *testing.T, as, sudo string, landlock bool, can, canAlone []string) {
	victim := exec.Command("sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = t.TempDir()
	own := 0
	if sudo != "" {
		own, _ = strconv.Atoi(sudo)
	}
	if err := os.Mkdir(filepath.Join(cmd.Dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own", "moved", "removed", "folder/old", "folder", ""} {
		path := filepath.Join(cmd.Dir, name)
		if name != "" && name != "folder" {
			if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(path, own, own); err != nil && os.Geteuid() == 0 {
			t.Fatal(err)
		}
	}
	defer os.Remove("/tmp/unspool-sandbox-test")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", inside, victim.Process.Pid), confinedAs+"="+as,
		"SUDO_UID="+sudo, "SUDO_GID="+sudo)
	if !landlock {
		cmd.Env = append(cmd.Env, without+"=1")
	}
	out, err := cmd.CombinedOutput()
	if strings.HasPrefix(string(out), "SKIP") {
		t.Skipf("skipped for want of a filter: %s", out)
	}
	if err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	t.Log(lines[0])
	missing := fmt.Sprintf("Landlock (%v)", unix.ENOSYS)
	if !landlock && !strings.Contains(lines[0], missing) {
		t.Error("it is not said that Landlock is missing")
	}
	if strings.Contains(lines[0], "not in force: Landlock") { // a program with cgo cannot use it, either
		can = slices.Concat(can, canAlone)
	}
	did := make(map[string]bool)
	for _, line := range lines[1:] {
		if what, could := strings.CutPrefix(line, "CAN "); could {
			did[what] = true
		}
	}
	for what := range did {
		if !slices.Contains(can, what) {
			t.Errorf("a confined process can: %s", what)
		}
	}
	for _, what := range can {
		if !did[what] {
			t.Errorf("a confined process cannot: %s", what)
		}
	}
	if victim.ProcessState != nil || victim.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the victim has ended")
	}
	// Without confinement most of them succeed, which shows that the attempts are right.
	succeeded := 0
	word := uint64(0)
	t.Chdir(cmd.Dir)
	for _, name := range []string{"start a process", "socket", "read /etc/passwd", "write beside",
		"executable memory"} {
		if attempts(victim.Process.Pid, &word)[name]() == nil {
			succeeded++
		}
	}
	if succeeded != 5 {
		t.Errorf("unconfined, %d of 5 attempts succeed", succeeded)
	}
}

// The filter is run by hand on what is asked of an opener.
func TestOpenerRules(t *testing.T) {
	t.Parallel()
	const pid, dir, other = 4711, 7, 8
	program := assemble((&Opening{Dirs: []int{dir}}).rules(pid), absent)
	closed := assemble((&Opening{}).rules(pid), absent)
	at := ^uint64(0) - 99 // AT_FDCWD
	for _, c := range []struct {
		what      string
		call      uintptr
		arguments [4]uint64
		allowed   bool
		withDir   bool
	}{
		{"read a file", unix.SYS_OPENAT, [4]uint64{at, 0, unix.O_RDONLY | unix.O_CLOEXEC}, true, true},
		{"write a file", unix.SYS_OPENAT, [4]uint64{at, 0, unix.O_WRONLY}, false, false},
		{"truncate a file", unix.SYS_OPENAT, [4]uint64{at, 0, unix.O_RDONLY | unix.O_TRUNC}, false, false},
		{"a temporary file", unix.SYS_OPENAT, [4]uint64{at, 0, unix.O_TMPFILE | unix.O_RDWR}, false, false},
		{"a folder", unix.SYS_OPENAT, [4]uint64{at, 0, unix.O_PATH | unix.O_DIRECTORY}, true, true},
		{"create in the directory", unix.SYS_OPENAT, [4]uint64{dir, 0, unix.O_RDWR | unix.O_CREAT}, false, true},
		{"create elsewhere", unix.SYS_OPENAT, [4]uint64{other, 0, unix.O_RDWR | unix.O_CREAT}, false, false},
		{"rename", unix.SYS_RENAMEAT, [4]uint64{dir, 0, dir}, false, true},
		{"rename elsewhere", unix.SYS_RENAMEAT, [4]uint64{dir, 0, other}, false, false},
		{"unlink elsewhere", unix.SYS_UNLINKAT, [4]uint64{at}, false, false},
		{"openat2", unix.SYS_OPENAT2, [4]uint64{}, false, false},
		{"exec", unix.SYS_EXECVE, [4]uint64{}, false, false},
		{"ptrace", unix.SYS_PTRACE, [4]uint64{}, false, false},
		{"write memory", unix.SYS_PROCESS_VM_WRITEV, [4]uint64{}, false, false},
		{"read memory, and ask its handler", unix.SYS_PROCESS_VM_READV, [4]uint64{}, false, false},
		{"a socket", unix.SYS_SOCKET, [4]uint64{}, false, false},
		{"a pair of sockets", unix.SYS_SOCKETPAIR, [4]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, true, true},
		{"another pair of sockets", unix.SYS_SOCKETPAIR, [4]uint64{unix.AF_TIPC, unix.SOCK_SEQPACKET}, false, false},
		{"a thread", unix.SYS_CLONE, [4]uint64{unix.CLONE_THREAD | unix.CLONE_VM}, true, true},
		{"a process", unix.SYS_CLONE, [4]uint64{uint64(unix.SIGCHLD)}, false, false},
		{"a flag of what is open", unix.SYS_FCNTL, [4]uint64{0, unix.F_SETFL, unix.O_NONBLOCK}, true, true},
		{"whom to tell of input", unix.SYS_FCNTL, [4]uint64{0, unix.F_SETOWN, pid + 1}, false, false},
		{"an event's ioctl", unix.SYS_IOCTL, [4]uint64{3, unix.PERF_EVENT_IOC_ENABLE}, true, true},
		{"type into a terminal", unix.SYS_IOCTL, [4]uint64{0, unix.TIOCSTI}, false, false},
		{"a limit of its own", unix.SYS_PRLIMIT64, [4]uint64{pid}, true, true},
		{"another's limit", unix.SYS_PRLIMIT64, [4]uint64{pid + 1}, false, false},
	} {
		if got := run(t, program, c.call, c.arguments); got != c.withDir {
			t.Errorf("%s: %v with a directory", c.what, got)
		}
		if got := run(t, closed, c.call, c.arguments); got != c.allowed {
			t.Errorf("%s: %v without one", c.what, got)
		}
	}
}

// TestTerminalOfAReader has a reader that takes keys set its terminal's mode, and type nothing into it.
func TestTerminalOfAReader(t *testing.T) {
	t.Parallel()
	for _, takes := range []bool{false, true} {
		program := (&Reading{Terminal: takes}).filter(4711)
		for request, want := range map[uint64]bool{
			unix.TCGETS: true, unix.TIOCGWINSZ: true, unix.TCSETS: takes, unix.TIOCSTI: false, unix.TIOCLINUX: false,
		} {
			if got := run(t, program, unix.SYS_IOCTL, [4]uint64{0, request}); got != want {
				t.Errorf("terminal %v: ioctl %#x is allowed: %v", takes, request, got)
			}
		}
	}
}

// run reports whether a filter allows a system call.
func run(t *testing.T, program []unix.SockFilter, call uintptr, arguments [4]uint64) bool {
	t.Helper()
	load := func(offset uint32) uint32 {
		switch {
		case offset == dataNumber:
			return uint32(call)
		case offset == dataArch:
			return auditArch
		}
		return uint32(arguments[(offset-dataArguments)/8])
	}
	accumulator := uint32(0)
	for at := 0; at < len(program); at++ {
		i := program[at]
		yes := false
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			accumulator = load(i.K)
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			accumulator &= i.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			return i.K == unix.SECCOMP_RET_ALLOW
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			yes = accumulator == i.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			yes = accumulator >= i.K
		default:
			t.Fatalf("instruction %+v", i)
		}
		if at += int(i.Jf); yes {
			at += int(i.Jt) - int(i.Jf)
		}
	}
	t.Fatal("the filter ends without a verdict")
	return false
}

// Each list names a call once, and every jump leads into the filter.
func TestListsOfCalls(t *testing.T) {
	t.Parallel()
	for _, list := range [][]uintptr{recorderCalls, openerCalls} {
		all := append(slices.Clone(runtimeCalls), list...)
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Error("a call is listed twice")
		}
	}
	if caller(func(string) string { return "1000" }) != 1000 ||
		caller(func(string) string { return "0" }) != noUser() ||
		caller(func(string) string { return "-1" }) != noUser() {
		t.Error("another user than sudo says")
	}
	if errors.Is(explain(unix.ENOTSUP), unix.ENOTSUP) {
		t.Error("ENOTSUP says nothing to a user")
	}
}

// socket tries to make a socket.
func socket(domain int) func() error {
	return func() error {
		_, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
		return err
	}
}
