package programs

import (
	"os/exec"
	"testing"
)

// NeedMounts skips the test where a process cannot have mounts of its own: without root, or in a root that is no mount
// point (chroot).
func NeedMounts(t testing.TB) {
	t.Helper()
	out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput()
	if err != nil {
		t.Skipf("a process cannot have mounts of its own here: %v\n%s", err, out)
	}
}
