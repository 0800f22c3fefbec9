package main

import (
	"fmt"
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

	"golang.org/x/sys/unix"

	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestKernel tries what depends on a kernel, in a root of its release: make test-kernels boots the kernels of Debian
// for it, and makes a table of its subtests. Before, it runs on this machine's kernel in each of the roots. Events are
// counted: of time, little can be said in an emulator.
func TestKernel(t *testing.T) {
	if lane := os.Getenv("UNSPOOL_LANE"); lane != "kernel" && lane != "root" {
		t.Skip("left to make test-kernels: it changes kernel.perf_event_paranoid")
	}
	for _, c := range []struct {
		name string
		try  func(t *testing.T)
	}{
		{"doctor", kernelDoctor},
		{"command", kernelCommand},
		{"-p", kernelProcess},
		{"-a", kernelMachine},
		{"deep stacks", kernelDeep},
		{"breakpoints", kernelBreakpoints},
		{"top", kernelTop},
		{"perf", kernelPerf},
		{"confined", kernelConfined},
		{"user, paranoid 1", func(t *testing.T) { kernelUser(t, 1) }},
		{"user, paranoid 2", func(t *testing.T) { kernelUser(t, 2) }},
		{"user, paranoid 3", kernelRefuses},
		{"capabilities", kernelCapabilities},
	} {
		t.Run(c.name, c.try)
	}
}

// TestProgramsOfRoots records programs that were compiled in roots of Debian's releases, with their C library or musl,
// and run in them: from outside, by this machine's kernel. make test-kernels makes the roots.
func TestProgramsOfRoots(t *testing.T) {
	roots := filepath.SplitList(os.Getenv("UNSPOOL_ROOTS"))
	if len(roots) == 0 {
		t.Skip("left to make test-kernels, which makes the roots")
	}
	for _, root := range roots {
		found, err := filepath.Glob(filepath.Join(root, "srv/unspool/qsort*"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no programs in %s: %v", root, err)
		}
		for _, path := range found {
			name := filepath.Base(filepath.Dir(root)) + " " + filepath.Base(path)
			t.Run(name, func(t *testing.T) { rootsProgram(t, root, path) })
		}
	}
}

// rootsProgram expects the chain of a program, its names, and advice about the package of its C library.
func rootsProgram(t *testing.T, root, path string) {
	t.Setenv("HOME", t.TempDir()) // for perf's cache of files
	t.Setenv("PERF_CONFIG", os.DevNull)
	t.Setenv("DEBUGINFOD_URLS", "")
	runs := fmt.Sprintf(strings.NewReplacer("held; ", "", "@20", "@20 3").Replace(counting),
		"chroot "+root+" "+strings.TrimPrefix(path, root))
	r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "8192", "--", "sh", "-c", waiting + runs})...)
	chain, err := programs.ParseChain(firstLine(r.stdout))
	if err != nil {
		t.Fatal(err)
	}
	named := loadProfile(t, r.path, symbols.Options{Root: root, Kallsyms: os.DevNull})
	matchNamed(t, r, named, chain, programs.Program{Name: "qsort"})
	e := unspool(t, "", "report", "--symfs", root, "--comm", filepath.Base(path), r.path)
	told := strings.Join(strings.Fields(e.stdout), "")
	wanted := map[string]string{"qsort": "libc6-dbg`in" + root, "qsort-musl": "musl-dbgsym`in" + root}[filepath.Base(path)]
	// Nothing lacks names if this machine has the same package with its symbols.
	if e.status != 0 || strings.Contains(told, "withoutnames") && !strings.Contains(told, wanted) {
		t.Errorf("status %d; it does not say %q:\n%s%s", e.status, wanted, e.stderr, e.stdout)
	}
}

// paranoid sets kernel.perf_event_paranoid of a kernel that is the test's own.
func paranoid(t *testing.T, level int) {
	t.Helper()
	if os.Getenv("UNSPOOL_LANE") != "kernel" {
		t.Skip("this kernel's kernel.perf_event_paranoid is not ours to change")
	}
	if err := os.WriteFile("/proc/sys/kernel/perf_event_paranoid", fmt.Appendln(nil, level), 0); err != nil {
		t.Fatal(err)
	}
}

func kernelDoctor(t *testing.T) {
	e := unspool(t, "", "doctor")
	if e.status != 0 {
		t.Errorf("status %d\n%s", e.status, e.stderr)
	}
	for _, want := range []string{`command  +-- COMMAND: \d+ samples`, `process  +-p PID: \d+ samples`,
		`whole machine  +-a: \d+ samples`, `confinement  +rec`} {
		if !regexp.MustCompile(want).MatchString(e.stdout) {
			t.Errorf("does not say %q:\n%s", want, e.stdout)
		}
	}
}

// kernelCommand records programs from their first instruction on: what is mapped, by the kernel's records alone.
func kernelCommand(t *testing.T) {
	for _, name := range []string{"qsort", "thread"} {
		r, chain := recordCountedCommand(t, programs.Build(t, name))
		matchCounted(t, r, chain, programs.Program{Name: name})
		r.whollyComplete(t)
	}
}

func kernelProcess(t *testing.T) {
	proc := programs.StartCounted(t, programs.Build(t, "plain"), counted)
	r := recordCounted(t, proc)
	matchCounted(t, r, proc.Chain, programs.Program{Name: "plain"})
	r.whollyComplete(t)
}

// kernelMachine records the whole machine: at 99 Hz, and an event of which there are as many as the test wants.
func kernelMachine(t *testing.T) {
	burner(t)
	r := record(t, "-a", "-F", "99", "-d", "1")
	if s := &r.stats.Samples; s.User == 0 || s.Lost > 0 && !strings.Contains(r.stderr, "lost") {
		t.Errorf("%+v\n%s", r.stats, r.stderr)
	}
	p := startToucher(t, "one", "other")
	s := startRecording(t, append([]string{"-a"}, rareOnly(t)...)...)
	p.touch(counted)
	s.control("stop")
	r = s.end(t)
	var touched int
	own := ownProfile(t, r.path)
	for _, sample := range own.Samples {
		if stack := userStack(own, sample.Node); len(stack) > 5 && slices.Equal(stack[:4],
			[]string{"touches_leaf", "touches_outer", "touches_pages", "touches_thread"}) {
			touched += int(sample.Count)
		}
	}
	if touched != 2*counted {
		t.Errorf("%d stacks of %d\n%s", touched, 2*counted, r.stderr)
	}
	r.whollyComplete(t)
}

// kernelDeep records stacks of which a small part is copied: the rest is read from the process. On a busy machine, that
// is sometimes too late, which is said. How often it was not, is a figure.
func kernelDeep(t *testing.T) {
	const depth, times = 300, 50
	p := startToucher(t)
	s := startRecording(t, append(rareOnly(t), "--stack-size", "1024", "-p", strconv.Itoa(p.pid))...)
	for range times {
		p.tell(fmt.Sprintf("1 %d", depth))
		s.drained()
	}
	s.control("stop")
	r := s.end(t)
	chain := programs.Chain{Kind: programs.Main, Frames: slices.Concat([]string{"main", "touches_pages"},
		slices.Repeat([]string{"touches_outer"}, depth), []string{"touches_leaf"})}
	own := ownProfile(t, r.path)
	var whole, cut int
	for _, sample := range own.Samples {
		switch stack := userStack(own, sample.Node); {
		case len(stack) == 0 || stack[0] != "touches_leaf":
		case chain.Match(stack) == nil:
			whole += int(sample.Count)
		case isTruncated(chain, stack):
			cut += int(sample.Count)
		default:
			t.Errorf("%d samples: %.600s", sample.Count, strings.Join(stack, " "))
		}
	}
	if whole+cut != times || whole == 0 || cut > 0 && !strings.Contains(r.stderr, "dump too short") {
		t.Errorf("%d stacks are whole and %d cut off, of %d\n%s", whole, cut, times, r.stderr)
	}
	lane.Figure(t, "%d of %d whole", whole, times)
}

func kernelBreakpoints(t *testing.T) {
	needBreakpoints(t)
	program := buildBreakpoint(t)
	r := record(t, "-e", fmt.Sprintf("mem:%#x:x", programs.AddressOf(t, program, "called")), "--", program, "main")
	if r.stats.Samples.Total != breakpointCalls {
		t.Errorf("%d samples, %d wanted\n%s", r.stats.Samples.Total, breakpointCalls, r.stderr)
	}
	r.whollyComplete(t)
}

// kernelTop has top write tables, as root and so confined, until one has the samples of a second.
func kernelTop(t *testing.T) {
	p := startToucher(t)
	tables, err := os.Create(filepath.Join(t.TempDir(), "tables"))
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	r := start(t, "", func(cmd *exec.Cmd) { cmd.Stdout = tables }, append([]string{"top"}, programs.Faults()...)...)
	p.touchUntil("a table with samples", func() bool {
		return strings.Contains(string(mustRead(t, tables.Name())), "touches_leaf")
	})
	r.Process.Signal(syscall.SIGINT)
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
}

// kernelPerf has the release's perf read a recording, and converts what that perf records.
func kernelPerf(t *testing.T) {
	need(t, "perf")
	if out, err := exec.Command("perf", "version").CombinedOutput(); err != nil {
		t.Skipf("perf is for another kernel: %s", firstLine(string(out)))
	}
	program := programs.Build(t, "qsort")
	r, chain := recordCountedCommand(t, program, levels)
	var read int
	for _, s := range perfScript(t, r.path) {
		if names := s.names(); len(names) > 0 && names[0] == chain.Leaf() && chain.Match(names) == nil {
			read++
		}
	}
	if read != counted {
		t.Errorf("perf shows %d whole stacks, of %d", read, counted)
	}
	raw := perfRecord(t, programs.Faults(), program, programs.Times(counted), levels)
	matchCounted(t, convert(t, raw), chain, programs.Program{Name: "qsort"})
}

// kernelConfined expects a recording, and what reads it afterwards, to have given up what this kernel allows them to
// give up, and to say so.
func kernelConfined(t *testing.T) {
	e := start(t, t.TempDir(), nil, "record", "-v", "-o", "out.folded", "--", "true").finish(t, time.Minute)
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	landlock := int(abi) > 0
	for prefix, wanted := range map[string][]string{
		"unspool: afterwards confined: ": {"no new privileges", "no capabilities", "memory limit", "seccomp"},
		"unspool: confined: ": {"no new privileges", "uid", "no capabilities", "not traceable", "memory limit",
			"seccomp"},
	} {
		i := slices.IndexFunc(e.lines(), func(l string) bool { return strings.Contains(l, prefix) })
		if i < 0 {
			t.Errorf("status %d; it does not say %q:\n%s", e.status, prefix, e.stderr)
			continue
		}
		_, said, _ := strings.Cut(e.lines()[i], prefix)
		inForce, missing, _ := strings.Cut(said, "; not in force: ")
		for _, w := range wanted {
			if !strings.Contains(inForce, w) {
				t.Errorf("%q is not in force: %s", w, said)
			}
		}
		if strings.Contains(inForce, "Landlock") != landlock || (missing == "") != landlock {
			t.Errorf("Landlock here: %v; it says: %s", landlock, said)
		}
	}
	if landlock {
		lane.Figure(t, "seccomp, Landlock %d", int(abi))
	} else {
		lane.Figure(t, "seccomp")
	}
}

// kernelUser records a command of an ordinary user's, with the kernel's part of the stacks if the kernel gives it.
func kernelUser(t *testing.T, level int) {
	dir := nobodysDirectory(t)
	paranoid(t, level)
	said := userRecords(t, dir, nil, "-e", "page-faults", "-c", "1")
	if strings.Contains(said, "user code only") != (level > 1) {
		t.Errorf("it says of the kernel's code:\n%s", said)
	}
	asNobody(t, dir, "record", "-q", "-a", "-d", "1").fails(t, statusFailure,
		`(?s)perf_event_paranoid.*\n  try: .*(sysctl|setcap|sudo)`)
}

// kernelRefuses is what a user is told where Debian's kernel refuses them everything.
func kernelRefuses(t *testing.T) {
	dir := nobodysDirectory(t)
	paranoid(t, 3)
	asNobody(t, dir, "record", "-q", "--", "true").fails(t, statusFailure,
		`(?s)perf_event_paranoid.*\n  try: .*sysctl`)
	if e := asNobody(t, dir, "doctor"); e.status != 1 || !strings.Contains(e.stdout, "perf_event_paranoid") {
		t.Errorf("doctor: status %d\n%s", e.status, e.stdout)
	}
}

// kernelCapabilities has a user record everything by a copy of the program that has capabilities. At level 3, Debian's
// kernels leave perf events to CAP_SYS_ADMIN.
func kernelCapabilities(t *testing.T) {
	dir := nobodysDirectory(t)
	paranoid(t, 3)
	if err := os.Link(capable(t), filepath.Join(dir, "unspool")); err != nil { // which keeps the capabilities
		t.Fatal(err)
	}
	most := 3
	if e := asNobody(t, dir, "record", "-q", "-a", "--", "true"); e.status != 0 {
		e.fails(t, statusFailure, `leaves perf events to CAP_SYS_ADMIN(?s).*\n  try: sudo sysctl .*paranoid=2`)
		most = 2
		paranoid(t, most)
	}
	said := userRecords(t, dir, []string{"-v", "-a"}, programs.Faults()...)
	if !strings.Contains(said, "no capabilities") {
		t.Errorf("it is not confined:\n%s", said)
	}
	lane.Figure(t, "paranoid %d", most)
}

// userRecords records a counted command as an ordinary user, with options and an event. Copies are so small that the
// ring, of 256 KiB for users, is never half full, however slowly it is read: files are waited for, and nothing is lost.
func userRecords(t *testing.T, dir string, options []string, event ...string) (stderr string) {
	t.Helper()
	program := filepath.Join(dir, "plain")
	copyFile(t, programs.Build(t, "plain"), program)
	e := asNobody(t, dir, slices.Concat([]string{"record", "-o", "perf.data", "--stats", "stats.json", "--stack-size",
		"512"}, options, event, []string{"--", program, programs.Times(counted)})...)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	chain, err := programs.ParseChain(firstLine(e.stdout))
	if err != nil {
		t.Fatal(err)
	}
	r := made(t, filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json"), e)
	matchCounted(t, r, chain, programs.Program{Name: "plain"})
	return e.stderr
}
