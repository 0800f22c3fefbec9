package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// NeedMode skips the test where the compilers make no programs for a mode, -m32 or -m64, or where the
// kernel does not run them.
func NeedMode(t testing.TB, mode string, compilers ...string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.c")
	if err := os.WriteFile(source, []byte("int main() { return 0; }"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, compiler := range compilers {
		program := source + "." + filepath.Base(compiler)
		if out, err := exec.Command(compiler, mode, "-o", program, source).CombinedOutput(); err != nil {
			t.Skipf("%s %s does not link (packages gcc-multilib, g++-multilib): %v\n%s", compiler, mode, err, out)
		}
		if err := exec.Command(program).Run(); err != nil {
			t.Skipf("this kernel does not run programs of %s %s: %v", compiler, mode, err)
		}
	}
}
