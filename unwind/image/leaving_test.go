package image

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const leavingSource = `
extern int other(int);
extern int (*anywhere)(int);
__attribute__((noinline)) int by_table(int n) { return other(n + 1); }
__attribute__((noinline)) int by_pointer(int n) { return anywhere(n); }
__attribute__((noinline)) int to_table(int n) { return by_table(n + 3); }
__attribute__((noinline)) int to_pointer(int n) { return by_pointer(n + 4); }
__attribute__((noinline)) int calls_both(int n) { return other(n) + anywhere(n) + 5; }
int (*anywhere)(int) = to_table;
int (*const kept[])(int) = {to_table, to_pointer, calls_both};
`

// A function that goes on to another file's by a procedure linkage table has not called generated code; one
// that jumps to where a pointer says may have.
func TestTailCallsThatMayLeave(t *testing.T) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	dir := t.TempDir()
	source, path := filepath.Join(dir, "leaving.c"), filepath.Join(dir, "leaving.so")
	if err := os.WriteFile(source, []byte(leavingSource), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-Wl,-z,lazy"}, {"-Wl,-z,now"}, {"-fcf-protection=none"}} {
		run(t, compiler, append(flags, "-O2", "-fno-ipa-icf", "-fvisibility=hidden", "-shared", "-fPIC", "-o", path,
			source)...)
		_, im := mapHole(t, New(Config{Proc: "/proc"}), path)
		if err := im.Parse(); err != nil {
			t.Fatal(err)
		}
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		leaves := map[string]bool{"by_table": false, "to_table": false, "calls_both": false, "by_pointer": true,
			"to_pointer": true}
		found := 0
		for _, s := range symbols {
			want, asked := leaves[s.Name]
			if !asked {
				continue
			}
			found++
			if im.leaves(s.Value) != want {
				t.Errorf("%v: %s may leave: %v", flags, s.Name, !want)
			}
			if s.Name == "by_table" && !im.mayReach(s.Value, noAddress) {
				t.Errorf("%v: %s does not leave the file", flags, s.Name)
			}
		}
		if found != len(leaves) {
			t.Errorf("%v: %d of the functions", flags, found)
		}
		if plt := f.Section(".plt"); plt == nil || !im.leaves(plt.Addr+plt.Size-16) {
			t.Errorf("%v: a call of the table itself leads nowhere", flags)
		}
	}
}
