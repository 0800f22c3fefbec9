package syscap

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

const program = `
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static char pages[200][4096] __attribute__((aligned(4096)));
static int touched;
volatile unsigned long sink;
#define NI __attribute__((noinline))
static inline int mix(int a) { pages[touched++][0] = a; return touched; }
NI void light(int n) { sink += mix(n); }
int less(const void *a, const void *b) { return *(int *)a - *(int *)b + mix(0) * 0; }
NI void heavy(int n) {
	int v[2] = {n, 1};
	qsort(v, 2, sizeof *v, less);
	sink += v[1];
}
NI void recurse(int n) { if (n) recurse(n - 1); else heavy(3); sink++; }
NI void calls(void) { if (getcwd(pages[touched++], 4096)) sink++; }
int main(int argc, char **argv) {
	pid_t child = argc > 1 ? fork() : 0;
	for (int i = 0; i < 40; i++) { light(i); recurse(5); calls(); }
	if (!child) return 0;
	wait(0);
	return execl(argv[1], argv[1], (char *)0);
}
`

// tool runs a tool and returns its output; it skips the test when the tool is missing.
func tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is missing", name)
	}
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if name == "perf" && (strings.Contains(stderr.String(), "perf_event_paranoid") ||
			strings.Contains(stderr.String(), "not supported")) {
			t.Skipf("perf may not record here: %s", stderr.String())
		}
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// record records page faults of two processes, one of which execs a program with the same addresses, and writes the
// capture.
func record(t testing.TB) (path string, p *profile.Profile) {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("program.c"), []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	tool(t, "gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-static", "-no-pie", "-o", in("fixed"),
		in("program.c"))
	tool(t, "gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-static", "-no-pie", "-o", in("other"),
		in("program.c"), "-Dlight=LIGHT", "-Dheavy=HEAVY", "-Drecurse=RECURSE", "-Dcalls=CALLS")
	// In the kernel, too, which writes to pages.
	tool(t, "perf", "record", "-q", "-c", "1", "-g", "-e", "page-faults", "-o", in("perf.data"), "--", in("fixed"),
		in("other"))
	r, err := perfdata.Open(in("perf.data"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := os.Create(in("x.syscap"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := New(struct{ io.Writer }{out}, r, Options{})
	p, err = profile.Load(r, symbols.New(symbols.Options{}), profile.Options{Watcher: w, Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return out.Name(), p
}

// stacksOf counts the samples of a profile by process and the names in their stacks, as captured.stacks does:
// without what is inlined.
func stacksOf(p *profile.Profile) map[string]int {
	count := map[string]int{}
	for _, s := range p.Samples {
		names := []string{fmt.Sprint(int32(p.Threads[s.Thread].PID))}
		for node := s.Node; node > 0; node = p.Nodes[node].Parent {
			if f := p.Frames[p.Nodes[node].Frame]; !f.Inlined {
				names = append(names, human.Printable(f.Name))
			}
		}
		count[strings.Join(names, ";")] += int(s.Count)
	}
	return count
}

func TestACaptureHasTheStacksOfTheProfile(t *testing.T) {
	path, p := record(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, b)
	want := stacksOf(p)
	if n := uint64(len(c.ofKind(frameSample))); n != p.Count() || n == 0 || len(want) < 2 {
		t.Fatalf("%d samples of %d, %d stacks", n, p.Count(), len(want))
	}
	for _, inclusive := range []bool{true, false} {
		if got := c.stacks(inclusive); !maps.Equal(got, want) {
			t.Errorf("the end of a range is part of it: %v", inclusive)
			differences(t, got, want)
		}
	}
	if !slices.ContainsFunc(c.ofKind(frameSample), func(f captureFrame) bool {
		return slices.ContainsFunc(f.addrs(), func(a uint64) bool { return a >= firstMadeUp && a < firstMadeUp<<1 })
	}) {
		t.Error("no address is that of several functions")
	}
	comms := map[int32]string{}
	for _, f := range c.ofKind(frameProcess) {
		comms[f.pid] = f.text(0)
	}
	for _, th := range p.Threads {
		if comms[int32(th.PID)] == "" {
			t.Errorf("process %d has no name", th.PID)
		}
	}
	if c.start == 0 || c.end <= c.start || len(c.ofKind(frameMap)) == 0 {
		t.Errorf("from %d to %d, %d mappings", c.start, c.end, len(c.ofKind(frameMap)))
	}
	t.Run("libsysprof", func(t *testing.T) { librarysReading(t, path, &c, want) })
	t.Run("sysprof-cli", func(t *testing.T) {
		// two files __symbols__, which is an error
		merged, err := parse([]byte(tool(t, "sysprof-cli", "--merge", path, path)))
		if n := uint64(len(merged.ofKind(frameSample))); n != 2*p.Count() {
			t.Errorf("%d samples, %d were merged with themselves; %v", n, p.Count(), err)
		}
	})
}

func differences(t *testing.T, got, want map[string]int) {
	t.Helper()
	for stack, n := range want {
		if got[stack] != n {
			t.Logf("%d of %d: %s", got[stack], n, stack)
		}
	}
	for stack, n := range got {
		if want[stack] == 0 {
			t.Logf("%d of none: %s", n, stack)
		}
	}
}

// sysprofReader compiles the program that reads a capture with Sysprof's library. resolves reports whether it
// can look names up: the library had that up to version 44.
func sysprofReader(t *testing.T) (path string, resolves bool) {
	t.Helper()
	if _, err := exec.LookPath("pkg-config"); err != nil {
		t.Skip("pkg-config is missing")
	}
	if exec.Command("pkg-config", "--exists", "sysprof-capture-4").Run() != nil {
		t.Skip("libsysprof-capture-4 is missing (Debian's libsysprof-4-dev or libsysprof-capture-4-dev)")
	}
	path = filepath.Join(t.TempDir(), "read")
	args := []string{"-o", path, "testdata/read.c"}
	resolves = exec.Command("pkg-config", "--exists", "sysprof-4").Run() == nil
	flags := "sysprof-capture-4"
	if resolves {
		flags = "sysprof-4"
		args = append(args, "-DNAMES")
	}
	args = append(args, strings.Fields(tool(t, "pkg-config", "--cflags", "--libs", flags))...)
	tool(t, "gcc", args...)
	return path, resolves
}

// librarysReading compares what Sysprof's library finds with what was written.
func librarysReading(t *testing.T, path string, c *captured, want map[string]int) {
	reader, resolves := sysprofReader(t)
	frames := map[string]int{}
	for _, f := range c.frames {
		frames[fmt.Sprint(f.kind)]++
	}
	stacks := map[string]int{}
	for line := range strings.Lines(tool(t, reader, path)) {
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch what {
		case "frames":
			if fmt.Sprint(frames[words[0]]) != words[1] {
				t.Errorf("%s frames of type %s, %d were written", words[1], words[0], frames[words[0]])
			}
			delete(frames, words[0])
		case "time":
			last := c.end // the last sample
			for _, f := range c.frames {
				last = max(last, f.time)
			}
			if want := fmt.Sprint(c.start, " ", last); rest != want {
				t.Errorf("from %s, want %s", rest, want)
			}
		case "sample":
			addrs := strings.Split(rest, "\t")
			stack := []string{strings.Fields(addrs[0])[0]}
			for _, a := range addrs[1:] {
				addr, name, _ := strings.Cut(a, " ")
				if !strings.HasPrefix(addr, "fffffffffffff") {
					stack = append(stack, name)
				}
			}
			stacks[strings.Join(stack, ";")]++
		}
	}
	if len(frames) > 0 {
		t.Errorf("Sysprof does not see frames: %v", frames)
	}
	if resolves && !maps.Equal(stacks, want) {
		differences(t, stacks, want)
		t.Error("Sysprof finds other names")
	}
}
