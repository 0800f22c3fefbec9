package programs

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
)

// TestChainsAreWhatGdbSees stops each program in its leaf and compares gdb's
// backtrace with the chain that the program prints.
func TestChainsAreWhatGdbSees(t *testing.T) {
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("gdb is not installed")
	}
	free := make(chan *debugger, runtime.GOMAXPROCS(0)) // as many as there are tests side by side
	for range cap(free) {
		free <- startGdb(t)
	}
	for b, build := range [][]string{
		{"-O2", "-fomit-frame-pointer"},
		{"-O0"},
		{"-O3", "-fomit-frame-pointer"},
		{"CC=clang", "-O2"},
		{"CC=clang", "-O0"},
		{"-O2", "-static"},
		{"-O2", "-static-pie"},
	} {
		if testing.Short() && build[0] != "-O2" {
			continue
		}
		t.Run(strings.Join(build, " "), func(t *testing.T) {
			for i, p := range Chains() {
				if b > 0 && (i+b)%3 > 0 && !AllOracles() {
					continue // built in the first way, and in two of the others
				}
				if p.Dynamic && strings.HasPrefix(build[len(build)-1], "-static") {
					continue
				}
				t.Run(p.String(), func(t *testing.T) {
					t.Parallel()
					proc := Start(t, Build(t, p.Name, build...), 60, p.Args...)
					until := proc.Chain.Leaf()
					if p.Name == "pulse" {
						until = "pulse_run" // the program does not stay in one function
					}
					gdb := <-free
					defer func() { free <- gdb }()
					stack := gdb.backtrace(t, proc, until)
					if err := proc.Chain.Match(stack); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

var gdbFrame = regexp.MustCompile(
	`(?m)^#\d+ +(?:0x[0-9a-f]+ in )?(.*?) \(\)|^#\d+ +(<signal handler called>)`)

// debugger is a gdb that examines one process after the other, as starting it takes longer than that.
type debugger struct {
	in  io.Writer
	out *bufio.Reader
}

// startGdb starts a gdb that ends with the test.
func startGdb(t *testing.T) *debugger {
	t.Helper()
	// Without separate debug files: they cost gdb a second, and only name
	// frames that the chain does not name.
	cmd := exec.Command("gdb", "-nx", "-q", "-iex", "set prompt", "-iex", "set confirm off",
		"-iex", "set pagination off", "-iex", "set width 0", "-iex", "set debug-file-directory /nonexistent",
		"-iex", "set auto-load off", "-iex", "set debuginfod enabled off", "-iex", "set backtrace past-main on")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &debugger{in, bufio.NewReader(out)}
}

// look returns what gdb prints about the threads of a process.
func (d *debugger) look(t *testing.T, pid int) string {
	t.Helper()
	const end = "that is all\n"
	fmt.Fprintf(d.in, "attach %d\nthread apply all backtrace\ndetach\nfile\nnosharedlibrary\n", pid)
	fmt.Fprintf(d.in, "echo \\n%s\\n\n", strings.TrimSpace(end))
	var text strings.Builder
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			t.Fatalf("gdb: %v\n%s%s", err, &text, line)
		}
		if line == end {
			return text.String()
		}
		text.WriteString(line)
	}
}

// backtrace is the stack of the thread of p that runs its chain, innermost first.
// It waits until that thread is in the function until.
func (d *debugger) backtrace(t *testing.T, p *Process, until string) []string {
	t.Helper()
	var said string
	var stack []string
	wait := 30 * time.Millisecond
	if !lane.Soon(func() bool {
		// It is stopped while gdb examines it, so that it does not take the CPU time that gdb needs.
		p.Process.Signal(syscall.SIGCONT)
		time.Sleep(wait)
		wait = min(2*wait, time.Second)
		p.Process.Signal(syscall.SIGSTOP)
		said = d.look(t, p.Process.Pid)
		for thread := range strings.SplitSeq(said, "\nThread ") {
			stack = nil
			for _, m := range gdbFrame.FindAllStringSubmatch(thread, -1) {
				stack = append(stack, m[1]+m[2])
			}
			if slices.ContainsFunc(stack, func(name string) bool { return function(name) == until }) {
				return true
			}
		}
		return false
	}) {
		t.Fatalf("%s never reached %s:\n%s", p.Path, until, said)
	}
	return stack
}

func TestMatch(t *testing.T) {
	c, err := ParseChain("chain main main sort * compare leaf ?")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, stack string // innermost first
		ok          bool
	}{
		{"whole", "leaf compare qsort_r qsort sort main start _start", true},
		{"library below the leaf", "tiny leaf compare qsort sort main _start", true},
		{"parameters", "leaf(int) compare qsort sort main(int) _start", true},
		{"taken higher up", "sort main _start", true},
		{"taken in the library", "qsort sort main _start", true},
		{"library frame missing", "leaf compare sort main _start", false},
		{"own frame missing", "leaf qsort sort main _start", false},
		{"own frame twice", "leaf compare compare qsort sort main _start", false},
		{"frame invented", "leaf compare qsort sort other main _start", false},
		{"cut off", "leaf compare qsort sort", false},
		{"root missing", "leaf compare qsort sort main", false},
		{"frames above the root", "leaf compare qsort sort main a b c d e", false},
		{"own frame above the root", "leaf compare qsort sort main sort", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := c.Match(strings.Fields(tc.stack)); (err == nil) != tc.ok {
				t.Errorf("Match = %v, want ok %v", err, tc.ok)
			}
		})
	}
}

func TestParseChainRefusesOtherLines(t *testing.T) {
	for _, line := range []string{"", "chain", "chain main", "storm 12"} {
		if c, err := ParseChain(line); err == nil {
			t.Errorf("ParseChain(%q) = %v, want an error", line, c)
		}
	}
}

// TestWorkloadsRun runs the programs that have no chain for a moment.
func TestWorkloadsRun(t *testing.T) {
	for _, tc := range []struct {
		name, stdin, want string
		args              []string
	}{
		{name: "secret", stdin: strings.Repeat("5a", 32), args: []string{"=3"},
			want: `^chain main main secret_hold \*\n$`},
		{name: "burn", args: []string{"5"}, want: `^$`},
		{name: "threads", args: []string{"1", "100"}, want: `^threads \d+\n$`},
		{name: "storm", args: []string{"1", "20", "/bin/true"}, want: `^storm 20\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(Build(t, tc.name), tc.args...)
			cmd.Stdin = strings.NewReader(tc.stdin)
			out, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile(tc.want).Match(out) {
				t.Errorf("%s: %v, printed %q, want %s", tc.name, err, out, tc.want)
			}
		})
	}
}

func TestBuildTwiceGivesTwoUsableCopies(t *testing.T) {
	first, second := Build(t, "burn"), Build(t, "burn")
	if first == second {
		t.Fatalf("both are %s", first)
	}
	for _, path := range []string{first, second} {
		if out, err := exec.Command(path, "1").CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", path, err, out)
		}
	}
}
