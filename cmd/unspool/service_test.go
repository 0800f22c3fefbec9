package main

import (
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

// asService has a command run a program as systemd does for a service that has a user of its own and capabilities.
func asService(t *testing.T, program string) func(*exec.Cmd) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	const capabilities = "+perfmon,+sys_ptrace,+dac_read_search,+syslog,+ipc_lock,+checkpoint_restore,+sys_nice"
	return func(cmd *exec.Cmd) {
		cmd.Path = setpriv
		cmd.Args = append([]string{"setpriv", "--reuid", strconv.Itoa(nobody), "--regid", strconv.Itoa(nobody),
			"--clear-groups", "--inh-caps=-all," + capabilities, "--ambient-caps=-all," + capabilities,
			"--bounding-set=-all," + capabilities, program}, cmd.Args[1:]...)
	}
}

// TestServiceWithCapabilities records another user's process as a service does that systemd gives a user of its own and
// capabilities (AmbientCapabilities=): what the recording process may, the process that opens files for it may.
func TestServiceWithCapabilities(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "setpriv")
	dir := nobodysDirectory(t)
	program := filepath.Join(dir, "unspool")
	copyFile(t, binary, program)
	path, stats := filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json")
	proc := programs.StartCounted(t, programs.Build(t, "plain"), counted)
	r, control := startControlledAs(t, dir, asService(t, program), slices.Concat([]string{"record", "-o", path, "--stats",
		stats}, programs.Faults(), []string{"-p", strconv.Itoa(proc.Process.Pid)})...)
	control("enable")
	proc.Continue()
	e := r.wait()
	if e.status != 0 || strings.Contains(e.stderr, "may not") {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	got := made(t, path, stats, e)
	got.whollyComplete(t)
	matchCounted(t, got, proc.Chain, programs.Program{})
}

// TestKernelNamesWithCapabilities records page faults inside the kernel, as one who gets capabilities by the program's
// file and as a service: what records and what reads have CAP_SYSLOG, so the kernel's functions have names. Who has it
// not is told that.
func TestKernelNamesWithCapabilities(t *testing.T) {
	t.Parallel()
	needParanoid(t)
	need(t, "setpriv", "dd")
	if level, err := os.ReadFile("/proc/sys/kernel/kptr_restrict"); err != nil || strings.TrimSpace(string(level)) > "1" {
		t.Skipf("kernel.kptr_restrict is %s: nobody sees the kernel's addresses", level)
	}
	dir := nobodysDirectory(t)
	plain := filepath.Join(dir, "unspool")
	copyFile(t, binary, plain)
	withCapabilities := capable(t)
	run := func(t *testing.T, change func(*exec.Cmd), args ...string) string {
		t.Helper()
		e := start(t, dir, change, args...).finish(t, 2*time.Minute)
		if e.status != 0 {
			t.Fatalf("%v: status %d\n%s", args, e.status, e.stderr)
		}
		return e.stdout + e.stderr
	}
	asCopy := func(cmd *exec.Cmd) {
		cmd.Path = withCapabilities
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	// The kernel fills pages that dd has not touched.
	faults := []string{"-e", "page-faults", "-c", "1", "--stack-size", "8192", "--", "dd", "if=/dev/zero", "of=/dev/null",
		"bs=1M", "count=1"}
	for name, change := range map[string]func(*exec.Cmd){"copy": asCopy, "service": asService(t, plain)} {
		t.Run(name, func(t *testing.T) {
			data, recorded, converted := name+".data", name+".recorded.folded", name+".converted.folded"
			run(t, change, slices.Concat([]string{"record", "-o", data}, faults)...)
			run(t, change, slices.Concat([]string{"record", "--no-inline", "-o", recorded}, faults)...)
			run(t, change, "convert", "--no-inline", "-o", converted, data)
			for _, folded := range []string{recorded, converted} {
				text, err := os.ReadFile(filepath.Join(dir, folded))
				if err != nil {
					t.Fatal(err)
				}
				named := strings.Count(string(text), "_[k]")
				if unnamed := strings.Count(string(text), "[kernel]_[k]"); named == 0 || unnamed > 0 {
					t.Errorf("%s: %d of the kernel's %d frames have no names:\n%s", folded, unnamed, named, text)
				}
			}
			inKernel := regexp.MustCompile(`(?m)% +(\S+) +\[kernel\]$`)
			rows := inKernel.FindAllStringSubmatch(run(t, change, "report", data), -1)
			if len(rows) == 0 || slices.ContainsFunc(rows, func(r []string) bool { return r[1] == "[kernel]" }) {
				t.Errorf("report: functions of the kernel: %q", rows)
			}
			told := strings.Join(strings.Fields(asNobody(t, dir, "report", data).stdout), " ")
			if !regexp.MustCompile(`(kptr_restrict is 1|paranoid is 2), so seeing them takes CAP_SYSLOG`).MatchString(told) {
				t.Errorf("who has no CAP_SYSLOG is not told that:\n%s", told)
			}
		})
	}
}
