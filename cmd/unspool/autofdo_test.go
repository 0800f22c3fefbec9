package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
)

// TestReadByAutoFDO has AutoFDO read recordings, with the library that perf_data_converter has, too. It
// refuses samples with registers and raw stacks.
func TestReadByAutoFDO(t *testing.T) {
	needRoot(t)
	need(t, "create_gcov", "perf")
	program := programs.Build(t, "burn")
	read := func(path string) (string, error) {
		gcov := filepath.Join(t.TempDir(), "out.gcov")
		out, err := exec.Command("create_gcov", "--binary="+program, "--profile="+path, "--gcov="+gcov,
			"--use_lbr=false").CombinedOutput()
		return string(out), err
	}
	raw := perfRecord(t, []string{"-e", "cpu-clock:u"}, program, "100")
	if out, err := read(raw); err == nil {
		t.Errorf("AutoFDO reads raw stacks now: %s", out)
	}
	for name, r := range map[string]recording{
		"recorded":  record(t, "--", program, "100"),
		"converted": convert(t, raw),
	} {
		if out, err := read(r.path); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
