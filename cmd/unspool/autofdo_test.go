package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/recordings"
)

// TestReadByAutoFDO has AutoFDO read recordings, with the library that perf_data_converter has, too. It
// refuses samples with registers and raw stacks.
func TestReadByAutoFDO(t *testing.T) {
	t.Parallel()
	need(t, "create_gcov")
	dir := recordings.Place(t, "raw", "shapes")
	program, raw := filepath.Join(dir, "shapes"), filepath.Join(dir, "raw.data")
	read := func(path string) (string, error) {
		gcov := filepath.Join(t.TempDir(), "out.gcov")
		out, err := exec.Command("create_gcov", "--binary="+program, "--profile="+path, "--gcov="+gcov,
			"--use_lbr=false").CombinedOutput()
		return string(out), err
	}
	if out, err := read(raw); err == nil {
		t.Errorf("AutoFDO reads raw stacks now: %s", out)
	}
	for name, path := range map[string]string{
		"recorded":  filepath.Join(dir, "shapes.data"),
		"converted": convert(t, raw).path,
	} {
		if out, err := read(path); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
