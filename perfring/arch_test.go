package perfring

import "testing"

func TestOtherArchitecturesAreRefused(t *testing.T) {
	for arch, ok := range map[string]bool{"amd64": true, "arm64": false, "386": false, "riscv64": false} {
		if err := CheckArch(arch); (err == nil) != ok {
			t.Errorf("%s: %v", arch, err)
		}
	}
}
