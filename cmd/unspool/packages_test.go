package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
	"unspool/unwind/image/fusetest"
)

// TestPackagesOfAnotherRoot records a program of a chroot that is at the same path here, and in a package: which of the
// two it is, its build ID tells. It is stripped, so there is advice.
func TestPackagesOfAnotherRoot(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "chroot", "dpkg-query")
	const path = "/usr/bin/dpkg-query"
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	list := filepath.Join(root, "var/lib/dpkg/info/theirs.list")
	for _, folder := range []string{filepath.Dir(path), "etc", "var/lib/dpkg/info"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, programs.Build(t, "plain", "-static", "-s"), filepath.Join(root, path))
	for file, text := range map[string]string{
		list: "/.\n" + path + "\n", filepath.Join(root, "etc/os-release"): "ID=debian\n",
		filepath.Join(root, "var/lib/dpkg/status"): "Package: theirs\nVersion: 7\n\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own := func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), noPerfConfig, "HOME="+dir, "DEBUGINFOD_URLS=") }
	run := func(args ...string) string {
		t.Helper()
		e := start(t, dir, own, args...).finish(t, time.Minute)
		if e.status != 0 {
			t.Fatalf("%q: status %d\n%s", args, e.status, e.stderr)
		}
		return strings.Join(strings.Fields(e.stdout), " ")
	}
	run(slices.Concat([]string{"record", "--stack-size", "8192"}, programs.Faults(), []string{"--", "sh", "-c", waiting +
		fmt.Sprintf(strings.Replace(counting, "held; ", "", 1), "chroot root "+path)})...)
	const asks = "dpkg-dbgsym"
	withRoot := func(t *testing.T) {
		for _, c := range []struct {
			args []string
			says string
		}{
			{nil, ""},
			{[]string{"--symfs", root}, "apt install theirs-dbgsym` in " + root},
			{[]string{"perf.data", "--symfs", root}, "apt install theirs-dbgsym` in " + root},
		} {
			told := run(slices.Concat([]string{"report", "--comm", "dpkg-query", "perf.data", "--no-process"}, c.args)...)
			bare := func(s string) string { return strings.ReplaceAll(s, " ", "") }
			if strings.Contains(told, asks) || !strings.Contains(bare(told), bare(c.says)) {
				t.Errorf("%q: want %q:\n%s", c.args, c.says, told)
			}
		}
	}
	t.Run("alone", withRoot)
	t.Run("beside a file system with a server", func(t *testing.T) {
		fusetest.Show(t, filepath.Join(root, "etc")) // for which another process opens the files
		withRoot(t)
	})
	if err := os.RemoveAll(filepath.Join(dir, ".debug")); err != nil {
		t.Fatal(err)
	}
	told := run("report", "--comm", "dpkg-query", "perf.data")
	for _, want := range []string{"it is not the file that was recorded", "--symfs"} {
		if strings.Contains(told, asks) || !strings.Contains(told, want) {
			t.Errorf("want %q:\n%s", want, told)
		}
	}
}
