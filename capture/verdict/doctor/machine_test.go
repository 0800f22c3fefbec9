package doctor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// setting is what this machine's kernel has under a name, "" where that is not to be had.
func setting(name string) string {
	b, err := os.ReadFile("/proc/sys/kernel/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// opens reports whether this process can sample itself, in user code at least.
func opens(t *testing.T) bool {
	t.Helper()
	a := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: 1_000_000, Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel}
	a.Size = uint32(unix.PERF_ATTR_SIZE_VER5)
	fd, err := unix.PerfEventOpen(&a, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// TestThisMachine looks at the machine that the test runs on, and asks it in other ways.
func TestThisMachine(t *testing.T) {
	checks := Run(nil)
	found := make(map[string]Check)
	for _, c := range checks {
		if _, twice := found[c.Name]; twice || c.State > Fail || c.Detail == "" {
			t.Errorf("%+v", c)
		}
		found[c.Name] = c
	}
	able := opens(t)
	if Able(checks) != able || (found["command"].State == Fail) == able {
		t.Errorf("events can be opened: %v, able: %v, %+v", able, Able(checks), found["command"])
	}
	healthy, _ := healthy(t)
	for _, c := range healthy.Run() {
		if _, ok := found[c.Name]; !ok && able {
			t.Errorf("%s is not looked at", c.Name)
		}
	}

	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"kernel":              unix.ByteSliceToString(uts.Release[:]),
		"perf_event_paranoid": setting("perf_event_paranoid"),
		"sample rate":         setting("perf_event_max_sample_rate"),
		"sampling time":       setting("perf_cpu_time_max_percent"),
		"kernel stack depth":  setting("perf_event_max_stack"),
		"open files":          fmt.Sprint(files.Cur),
	} {
		notLimited := name == "sampling time" && (want == "0" || want == "100")
		c, own := found[name]
		if !own { // as it should be
			c = found["settings"]
		}
		if !strings.Contains(c.Detail, want) && !notLimited {
			t.Errorf("%s: %+v, want %s", name, c, want)
		}
	}
	_, err := exec.LookPath("perf")
	here, _, _ := strings.Cut(found["tools nearby"].Detail, "not found")
	if (strings.Contains(here, "perf") && !strings.Contains(here, "none of")) != (err == nil) {
		t.Errorf("%+v; perf: %v", found["tools nearby"], err)
	}
	if os.Geteuid() == 0 && able && found["whole machine"].State == Fail {
		t.Errorf("%+v as root", found["whole machine"])
	}

	var b bytes.Buffer
	if err := Print(&b, checks, 80, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !strings.Contains(b.String(), " "+c.Name+" ") || c.Fix != "" && !strings.Contains(b.String(), c.Fix) {
			t.Errorf("%+v is not printed:\n%s", c, &b)
		}
	}
}
