package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/testdata/programs"
)

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
	const capabilities = "+perfmon,+sys_ptrace,+dac_read_search,+syslog,+ipc_lock,+checkpoint_restore,+sys_nice"
	r, control := startControlledAs(t, dir, func(cmd *exec.Cmd) {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = setpriv
		cmd.Args = append([]string{"setpriv", "--reuid", strconv.Itoa(nobody), "--regid", strconv.Itoa(nobody),
			"--clear-groups", "--inh-caps=-all," + capabilities, "--ambient-caps=-all," + capabilities,
			"--bounding-set=-all," + capabilities, program}, cmd.Args[1:]...)
	}, slices.Concat([]string{"record", "-o", path, "--stats", stats}, programs.Faults(),
		[]string{"-p", strconv.Itoa(proc.Process.Pid)})...)
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
