package programs

import (
	"io"
	"os/exec"
	"testing"
)

// Telling starts a program until the test ends, and returns what it writes.
func Telling(t testing.TB, cmd *exec.Cmd) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = StartTied(t, cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return out
}
