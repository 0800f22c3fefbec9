package workloads

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine describes where a run took place.
func Machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	text := func(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
	perf, _ := exec.Command("perf", "--version").Output()
	return fmt.Sprintf("%s: %s, %d CPUs, %s, Linux %s, %s.", time.Now().UTC().Format(time.DateOnly),
		fileValue("/proc/cpuinfo", "model name", ":"), CPUs(),
		strings.Trim(fileValue("/etc/os-release", "PRETTY_NAME", "="), `"`), text(u.Release[:]),
		strings.TrimSpace(string(perf)))
}

// CPUs is the number of CPUs that this process may use.
func CPUs() int {
	var set unix.CPUSet
	_ = unix.SchedGetaffinity(0, &set)
	return set.Count()
}

// LastCPU is the CPU with the highest number of those.
func LastCPU() (last int) {
	var set unix.CPUSet
	_ = unix.SchedGetaffinity(0, &set)
	for cpu := range 64 * len(set) {
		if set.IsSet(cpu) {
			last = cpu
		}
	}
	return last
}

// fileValue is the value of the first line of a file that begins with key.
func fileValue(path, key, sep string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, sep); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
