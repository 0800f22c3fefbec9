package unwind

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind/image"
	"unspool/vmas"
	"unspool/vmas/process"
)

// gdbScript prints the registers of the innermost frame by DWARF number, and
// the PC of every frame. Inlined frames have no return address of their own.
const gdbScript = `
f = gdb.newest_frame()
for n, name in enumerate("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()):
    print("reg", n, hex(int(f.read_register(name)) & (1 << 64) - 1))
n = 0
while f is not None and n < 4000:
    if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): # which gdb makes up from debug information
        print("pc", hex(f.pc()), f.name())
        n += 1
    stop, f = f.unwind_stop_reason(), f.older()
print("stop", gdb.frame_stop_reason_string(stop))
`

// A stopped process, as gdb sees it.
type gdbState struct {
	regs  Regs
	pcs   []uint64
	names []string
	stop  string // why gdb goes no further
}

// gdbBacktrace attaches gdb to a stopped process.
func gdbBacktrace(t *testing.T, gdb, script string, pid int) (s gdbState) {
	t.Helper()
	// Separate debug files would take gdb as long as all the rest, and give names only.
	cmd := exec.Command(gdb, "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-iex",
		"set auto-load off", "-iex", "set debug-file-directory /nonexistent",
		"-ex", "set backtrace past-main on", "-ex", "set backtrace past-entry on", "-ex",
		"set backtrace limit unlimited",
		"-p", strconv.Itoa(pid), "-x", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "reg":
			n, _ := strconv.Atoi(f[1])
			v, err := strconv.ParseUint(f[2], 0, 64)
			if err != nil {
				t.Fatalf("gdb: %q", line)
			}
			s.regs.set(n, v)
		case len(f) >= 3 && f[0] == "pc":
			v, err := strconv.ParseUint(f[1], 0, 64)
			if err != nil {
				t.Fatalf("gdb: %q", line)
			}
			s.pcs, s.names = append(s.pcs, v), append(s.names, strings.Join(f[2:], " "))
		case len(f) > 1 && f[0] == "stop":
			s.stop = strings.TrimSpace(strings.TrimPrefix(line, "stop"))
		}
	}
	if len(s.pcs) == 0 {
		if bytes.Contains(out, []byte("ptrace: Operation not permitted")) {
			t.Skip("skipped for want of the permission to ptrace")
		}
		if bytes.Contains(out, []byte("Python scripting is not supported")) {
			t.Skip("skipped for want of a gdb with Python")
		}
		t.Fatalf("gdb gave no frames:\n%s", out)
	}
	return s
}

// stop sends SIGSTOP and waits until the process has it.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lane.Eventually(t, "the process to stop", func() bool { return isStopped(pid) })
}

// isStopped reads the state in /proc/PID/stat, after the name in parentheses.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	return err == nil && strings.HasPrefix(state, "T")
}

// isSleeping reports whether a process is in clock_nanosleep, as with sleep(1) and Python's time.sleep. Before that it
// may be in the dynamic linker.
func isSleeping(pid int) bool {
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	number, _, _ := strings.Cut(string(call), " ")
	return err == nil && number == strconv.Itoa(syscall.SYS_CLOCK_NANOSLEEP)
}

// hasUsed reports whether a process has had so many ticks of CPU time (utime in proc_pid_stat(5)).
func hasUsed(pid, ticks int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	const utime = 14 - 3 // the fields behind the name in parentheses begin with the third
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	used, err := strconv.Atoi(fields[utime])
	return err == nil && used >= ticks
}

// aStoppable is a program to stop now and then.
type aStoppable struct {
	name    string
	command func(t *testing.T) []string
	// generated means that the program generates code, which has no CFI: gdb
	// takes words off the stack there, so it is heard up to such a frame only.
	generated bool
}

func installed(t *testing.T, name string, args ...string) []string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("skipped for want of %s", name)
	}
	if full := filepath.Join("/usr/bin", name); path != full {
		if _, err := os.Stat(full); err == nil {
			path = full // not a launcher for it
		}
	}
	return append([]string{path}, args...)
}

const pythonLoop = `
import json
class C:
    def __init__(self, v): self.v = v
    def __lt__(self, other): return self.v < other.v
def deep(n): return deep(n - 1) if n else sorted(C(i * 7919 % 331) for i in range(331))
while True: deep(30); json.loads(json.dumps({str(i): [i] * 5 for i in range(200)}))
`

const goLoop = `package main

import ("fmt"; "runtime"; "sort")

func init() { runtime.LockOSThread() } // main runs on the first thread

//go:noinline
func deep(n int) int {
	if n > 0 { return deep(n - 1) + 1 }
	m := map[string]int{}
	for i := range 300 { m[fmt.Sprint(i * 7919 % 331)] = i }
	var s []string
	for k := range m { s = append(s, k) }
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	return len(s)
}

func main() { for { deep(20) } }
`

func stoppables() []aStoppable {
	return []aStoppable{
		{name: "sleep", command: func(t *testing.T) []string { return installed(t, "sleep", "600") }},
		{name: "python3 asleep", command: func(t *testing.T) []string {
			return installed(t, "python3", "-c", "import time; sorted([1, 2], key=lambda i: time.sleep(600))")
		}},
		{name: "python3", command: func(t *testing.T) []string {
			return installed(t, "python3", "-c", pythonLoop)
		}},
		{name: "perl", command: func(t *testing.T) []string {
			return installed(t, "perl", "-e", `sub deep { my $n = shift; `+
				`$n ? deep($n - 1) : join ',', sort { $a <=> $b } map { $_ * 7919 % 331 } 1 .. 300 } `+
				`while (1) { deep(20); my $s = 'one-1 ' x 50; $s =~ s/(\w+)-(\d+)/eval "$2 + 1"/ge }`)
		}},
		{name: "bash", command: func(t *testing.T) []string {
			return installed(t, "bash", "-c", `deep() { if (($1)); then deep $(($1 - 1)); `+
				`else local i; for i in {1..50}; do :; done; fi; }; while :; do deep 20; done`)
		}},
		{name: "Go", command: func(t *testing.T) []string {
			return []string{programs.BuildGo(t, goLoop, nil)}
		}},
		{name: "node", generated: true, command: func(t *testing.T) []string {
			return installed(t, "node", "-e", `const o = [...Array(3000).keys()].map(`+
				`i => ({a: i, b: String(i * 7919 % 331)})); `+
				`function deep(n) { return n ? deep(n - 1) : require('crypto').createHash('sha256')`+
				`.update(JSON.stringify(JSON.parse(JSON.stringify(o)))).digest() } while (true) deep(20)`)
		}},
	}
}

// TestStoppedProcessesAgreeWithGdb stops programs now and then, and walks what
// gdb walks: the same registers, the same 32 KiB of stack.
func TestStoppedProcessesAgreeWithGdb(t *testing.T) {
	gdb, err := exec.LookPath("gdb")
	if err != nil {
		t.Skip("skipped for want of gdb")
	}
	script := filepath.Join(t.TempDir(), "frames.py")
	if err := os.WriteFile(script, []byte(gdbScript), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, p := range stoppables() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			command := p.command(t)
			cmd := exec.Command(command[0], command[1:]...)
			if err := programs.StartTied(t, cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			stops := 2
			if strings.Contains(p.name, "sleep") {
				stops = 1
				lane.Eventually(t, "the program to sleep", func() bool { return isSleeping(cmd.Process.Pid) })
			} else {
				lane.Eventually(t, "the program to start", func() bool { return hasUsed(cmd.Process.Pid, 15) })
			}
			if p.generated { // gdb takes seconds to read the file
				stops = 1
			}
			if programs.AllOracles() {
				stops *= 20
			}
			images := image.NewStore("/proc")
			for range stops {
				p.compareStopped(t, gdb, script, cmd.Process.Pid, images)
				syscall.Kill(cmd.Process.Pid, syscall.SIGCONT)
				time.Sleep(37 * time.Millisecond)
			}
		})
	}
}

// goRoots are where a Go stack ends: the runtime's own tracebacks go no
// further (funcdata TOPFRAME in its assembly, cmd/internal/objabi's
// FuncID_mcall). gdb does not know, and takes what lies above for frames.
var goRoots = map[string]bool{
	"runtime.goexit": true, "runtime.mstart": true, "runtime.mcall": true, "runtime.rt0_go": true,
}

// goSwitches leave the goroutine's stack for the thread's own, or the other
// way round; gdb stays where it is.
var goSwitches = map[string]bool{
	"runtime.systemstack": true, "runtime.asmcgocall": true, "runtime.morestack": true, "runtime.gogo": true,
}

// compareStopped stops a process and compares the two backtraces of its first
// thread.
func (p *aStoppable) compareStopped(t *testing.T, gdb, script string, pid int, images *image.Store) {
	t.Helper()
	var want gdbState
	lane.Eventually(t, "gdb to leave the process stopped", func() bool { // as it mostly does
		stop(t, pid)
		want = gdbBacktrace(t, gdb, script, pid)
		return isStopped(pid)
	})
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Skipf("skipped for want of the permission to read memory: %v", err)
	}
	defer mem.Close()
	sp, _ := want.regs.Get(SP)
	stack := Stack{Base: sp, Data: make([]byte, 32<<10), Asked: 32 << 10}
	n, _ := mem.ReadAt(stack.Data, int64(sp))
	stack.Data = stack.Data[:n]

	table := vmas.NewTableOf(process.Direct("/proc"), images.Forget)
	space, err := table.Seed(uint32(pid))
	if err != nil {
		t.Fatal(err)
	}
	walker := NewUnwinder(images)
	got := walker.Unwind(space, &want.regs, &stack)
	for range 4 { // what it lacks elsewhere, as a recording reads it at the thread's next samples
		const size = 64 << 10
		addr, ok := got.Wish(&stack)
		if !ok {
			break
		}
		piece := Piece{Addr: addr &^ 1023, Data: make([]byte, size)}
		n, _ := mem.ReadAt(piece.Data, int64(piece.Addr))
		piece.Data = piece.Data[:n]
		stack.Wished = append(stack.Wished, piece)
		got = walker.Unwind(space, &want.regs, &stack)
	}
	known := len(want.pcs) // frames of which gdb knows
	for i, name := range want.names {
		if goRoots[name] {
			known = i + 1
			break
		}
		if goSwitches[name] && i < len(got.IPs) {
			got.IPs = got.IPs[:i+1]
			known = i + 1
			break
		}
	}
	for i, pc := range got.IPs {
		if p.generated && got.Frames[i].Source != BySample && got.Frames[i].Source != ByCFI {
			t.Logf("%d frames up to generated code, then the walk's alone", i)
			return
		}
		if i == known {
			t.Errorf("gdb stops after %d frames (%s: %s), the walk after %d: %v", i, want.names[i-1], want.stop,
				len(got.IPs), got.End)
			return
		}
		if pc != want.pcs[i] {
			t.Errorf("frame %d is %#x, %v, gdb has %#x (%s) above %s; gdb's %d frames: %#x; "+
				"the walk's %d: %#x, ended: %v",
				i, pc, got.Frames[i].Source, want.pcs[i], want.names[i], want.names[max(i-1, 0)], len(want.pcs), want.pcs,
				len(got.IPs), got.IPs, got.End)
			return
		}
	}
	cut := got.End == DumpTooShort && len(stack.Data) == int(stack.Asked)
	if len(got.IPs) < known && !cut {
		t.Errorf("the walk ends after %d frames (%v), gdb after %d: %v", len(got.IPs), got.End, known, want.names)
		return
	}
	t.Logf("%d frames, ended: %v at %s; gdb: %d", len(got.IPs), got.End, want.names[len(got.IPs)-1],
		len(want.pcs))
}
