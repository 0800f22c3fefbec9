package capture

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
)

// compiled is the path of a program that gcc has made of a source in C.
func compiled(t *testing.T, source string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "made")
	if err := os.WriteFile(program+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc := exec.Command("gcc", append(flags, "-o", program, program+".c")...)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	return program
}

// startTelling starts a program until the test ends, and returns what it writes.
func startTelling(t *testing.T, cmd *exec.Cmd) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = programs.StartTied(t, cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return out
}
