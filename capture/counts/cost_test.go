package counts

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMaxRSSIsOfThisProgram asks a process for the most memory that it has had. It had more before it executed this
// program: getrusage(2) counts that, too.
func TestMaxRSSIsOfThisProgram(t *testing.T) {
	const variable, size = "UNSPOOL_MAXRSS", 128 << 20
	switch os.Getenv(variable) {
	case "grow":
		memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		memory[0] = 1
		t.Fatal(syscall.Exec("/proc/self/exe", os.Args, []string{variable + "=print"}))
	case "print":
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%d %d\n", MaxRSS(), u.Maxrss<<10)
		os.Exit(0)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMaxRSSIsOfThisProgram$")
	cmd.Env = append(os.Environ(), variable+"=grow")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	now, before, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	most, err := strconv.ParseUint(now, 10, 64)
	if err != nil || most == 0 || most >= size {
		t.Errorf("%q bytes, %v", now, err)
	}
	if kernels, err := strconv.ParseUint(before, 10, 64); err != nil || kernels < size {
		t.Errorf("getrusage says %q bytes, so this test shows nothing", before)
	}
}
