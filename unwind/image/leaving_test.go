package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/module"
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
		run(t, "", compiler, append(flags, "-O2", "-fno-ipa-icf", "-fvisibility=hidden", "-shared", "-fPIC", "-o", path,
			source)...)
		_, im := mapHole(t, New(Config{Proc: "/proc"}), path)
		if err := im.Parse(); err != nil {
			t.Fatal(err)
		}
		for function, want := range map[string]bool{"by_table": false, "to_table": false, "calls_both": false,
			"by_pointer": true, "to_pointer": true} {
			if im.mayReach(programs.AddressOf(t, path, function), module.NoFile) != want {
				t.Errorf("%v: %s may leave: %v", flags, function, !want)
			}
		}
		byTable := programs.AddressOf(t, path, "by_table")
		if !im.mayReach(byTable, module.Elsewhere) {
			t.Errorf("%v: by_table does not leave the file", flags)
		}
		d, err := im.cfi.FDE(byTable)
		if err != nil {
			t.Fatal(err)
		}
		if exits, _ := im.code.Exits(d.Start, d.End); len(exits) != 1 || !im.mayReach(exits[0].Target, module.NoFile) {
			t.Errorf("%v: a call of the table itself leads nowhere: %+v", flags, exits)
		}
	}
}
