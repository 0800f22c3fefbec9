package capture

import (
	"io"
	"os/exec"
	"testing"

	"unspool/testdata/programs"
)

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
