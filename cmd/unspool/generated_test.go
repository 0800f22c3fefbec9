package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// TestPerfMapsAreKept records processes whose perf maps are nowhere when names are looked up: with the PID of another
// namespace, in a file system that is gone, and removed by the process itself.
func TestPerfMapsAreKept(t *testing.T) {
	t.Parallel()
	needRoot(t)
	programs.NeedMounts(t)
	program := buildCase(t, "mapped.c")
	// The program's input ends when the recorder holds the map: how long that takes is for tests that judge by time.
	const held = `{ echo; while [ -d /proc/$u ] && ! ls -l /proc/$u/fd | grep -q perf-[0-9]*.map$; do ` +
		`sleep 0.01; done; } | `
	var one sync.Mutex // at a time writes /tmp/perf-1.map
	for i, c := range []struct{ name, script string }{
		{"PID namespace", held + "unshare -pf --mount-proc %[1]s %[2]d kept"},
		{"PID and mount namespace", held +
			"unshare -mpf --mount-proc sh -c 'mount -t tmpfs none /tmp && exec %[1]s %[2]d kept'"},
		{"removed", held + "%[1]s %[2]d gone"},
	} {
		for j, option := range []string{"--sandbox", "--no-sandbox"} {
			for k, output := range []string{"out.folded", "out.data"} {
				if (i+j+k)%2 > 0 { // half of them have each two of the three together
					continue
				}
				t.Run(fmt.Sprintf("%s %s %s", c.name, option, output), func(t *testing.T) {
					t.Parallel()
					if c.name == "PID namespace" {
						one.Lock()
						defer one.Unlock()
					}
					folded, e := recordMapped(t, fmt.Sprintf(c.script, mappedAt(t, program), counted), option, output)
					if want := fmt.Sprintf(";main;generated_one_[j] %d\n", counted); !strings.Contains(folded, want) {
						t.Errorf("no %q in\n%s\n%s", want, folded, e.stderr)
					}
					if strings.Contains(e.stderr, "has not named") {
						t.Error(e.stderr)
					}
				})
			}
		}
	}
}

// mappedAt is a copy of a program, which stays when /tmp is another one.
func mappedAt(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "unspool-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "mapped")
	copyFile(t, program, path)
	return path
}

// recordMapped records a script with mapped in it, in which u is the process that records. A recording is converted
// when all is over.
func recordMapped(t *testing.T, script, option, output string) (folded string, e ended) {
	t.Helper()
	dir := t.TempDir()
	e = start(t, dir, nil, "record", option, "-o", output, "-e", "page-faults:u", "-c", "1", "--stack-size", "8192",
		"--", "sh", "-c", ofRecorder+script).finish(t, time.Minute)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	if output != "out.folded" {
		if c := start(t, dir, nil, "convert", output, "-o", "out.folded").finish(t, time.Minute); c.status != 0 {
			t.Fatalf("convert: status %d\n%s", c.status, c.stderr)
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "out.folded"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content), e
}

// TestCodeThatIsNotNamed: at the end of a recording it is said of which processes generated code has no names, and why.
func TestCodeThatIsNotNamed(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "mapped.c")
	for _, c := range []struct{ what, says string }{
		{"none", "generated and has not named: if its runtime can write a perf map or a jitdump"},
		{"stranger", "generated and has not named: the names that it wrote are not used: it belongs to user 12345, not to " +
			"the process's (0) or root"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			r := recordAsked(t, startAsked(t, t.TempDir(), program, strconv.Itoa(counted), c.what))
			text := strings.Join(strings.Fields(output(t, "", binary, "report", r.path)), " ") // it is wrapped
			if strings.Contains(text, "generated_one") || !strings.Contains(r.stderr, c.says) {
				t.Errorf("no %q in\n%s\n%s", c.says, r.stderr, text)
			}
			if c.what == "stranger" && (!strings.Contains(text, "are not used: see the notes at the end") ||
				!strings.Contains(text, "belongs to user 12345")) {
				t.Error(text)
			}
		})
	}
}

// TestRuntimesAreToldOf records runtimes that name nothing, and asks the doctor about them before.
func TestRuntimesAreToldOf(t *testing.T) {
	t.Parallel()
	needRoot(t)
	times := strconv.Itoa(touched)
	expect := func(t *testing.T, who, text string, parts ...string) {
		t.Helper()
		plain := strings.Join(strings.Fields(text), " ") // it is wrapped
		for _, part := range parts {
			if !strings.Contains(plain, part) {
				t.Errorf("%s does not say %q:\n%s", who, part, text)
			}
		}
	}
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		need(t, "node")
		node := startAsked(t, t.TempDir(), "node", atOnce, source(t, "touch.js"), times)
		const how = "start it with `node --perf-basic-prof`"
		pid := node.Process.Pid
		expect(t, "doctor", doctorOf(t, pid), how, fmt.Sprintf("there is no /tmp/perf-%d.map", pid))
		r := recordAsked(t, node)
		expect(t, "record", r.stderr, fmt.Sprintf("go through code that node (process %d) generated and has not named: %s",
			pid, how))
		expect(t, "report", output(t, "", binary, "report", r.path), "of the stacks go through code without names",
			fmt.Sprintf("go through code that node (process %d) generated: %s", pid, how))
	})
	t.Run("java", func(t *testing.T) {
		t.Parallel()
		java := startAsked(t, classes(t, "Hot.java"), "java", "-XX:-PreserveFramePointer", "-Xmx64m", "-Xbatch", "Hot",
			times, "pages")
		pid := java.Process.Pid
		names := fmt.Sprintf("run `jcmd %d Compiler.perfmap` while it runs", pid)
		const frames = "start it with `java -XX:+PreserveFramePointer`"
		expect(t, "doctor", doctorOf(t, pid), names, frames)
		r := recordAsked(t, java)
		expect(t, "record", r.stderr, "go through code that Java (process")
		expect(t, "report", output(t, "", binary, "report", r.path), "go through code that Java (process")
		if r.stats.Unwind.Complete < r.stats.Samples.User {
			expect(t, "record", r.stderr, frames)
			expect(t, "report", output(t, "", binary, "report", r.path), frames)
		}
	})
}

// doctorOf is what the doctor says, a process included.
func doctorOf(t *testing.T, pid int) string {
	t.Helper()
	out, _ := exec.Command(binary, "doctor", "-p", strconv.Itoa(pid)).Output() // of the machine it may find faults
	return string(out)
}
