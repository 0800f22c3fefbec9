package doctor

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"unspool/capture/counts"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

const (
	allCaps = "CapPrm:\t000001ffffffffff\nSeccomp:\t0\n"
	noCaps  = "Name:\tunspool\nCapPrm:\t0000000000000000\nSeccomp:\t0\n"
	status  = "proc/self/status"
	kernel  = "proc/sys/kernel/"
	events  = "sys/kernel/tracing/events/sched/sched_switch/id"
)

// fine is a trial without a shortfall.
var fine = Trial{Samples: 100, User: 80, Complete: 80, Rings: inTrial}

// inTrial are the rings of trials.
var inTrial = perfring.RingUse{Each: 2 << 20, Total: 192 << 20, Stack: 7 << 10, Lasts: 256 * time.Millisecond}

// healthy is a machine without a shortfall, under a temporary root.
func healthy(t *testing.T) (*Environment, string) {
	t.Helper()
	root := t.TempDir()
	m := &Environment{
		Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Etc: filepath.Join(root, "etc"),
		Debug:   filepath.Join(root, "debug"),
		Release: "6.12.3-amd64", Arch: "x86_64", Built: "amd64", CPUs: 4, Program: "/usr/bin/unspool",
		Open:     func(*unix.PerfEventAttr, int, int) error { return nil },
		Try:      func(Tried) (Trial, error) { return fine, nil },
		Environ:  func(string) string { return "" },
		Priority: func() (string, bool) { return "real-time 1", true },
		Limit:    func(int) (unix.Rlimit, error) { return unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, nil },
		LookPath: func(name string) (string, error) { return "/usr/bin/" + name, nil },
	}
	for name, text := range map[string]string{
		status:                                allCaps,
		kernel + "perf_event_paranoid":        "2\n",
		kernel + "perf_event_mlock_kb":        "516\n",
		kernel + "perf_event_max_sample_rate": "100000\n",
		kernel + "perf_cpu_time_max_percent":  "25\n",
		kernel + "perf_event_max_stack":       "127\n",
		kernel + "kptr_restrict":              "0\n",
		kernel + "yama/ptrace_scope":          "1\n",
		"proc/kallsyms":                       "ffffffff81000000 T _text\n",
		"proc/filesystems":                    "nodev\ttracefs\n",
		events:                                "316\n",
		"debug/.build-id/00/01.debug":         "ELF",
	} {
		put(t, root, name, text)
	}
	return m, root
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if text == "" {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestHealthyMachine(t *testing.T) {
	m, _ := healthy(t)
	checks := m.Run()
	for _, c := range checks {
		if c.State != OK || c.Fix != "" || c.Detail == "" || utf8.RuneCountInString(c.Name) > nameWidth {
			t.Errorf("%+v", c)
		}
	}
	if !Able(checks) {
		t.Error("not able to record")
	}
}

// refuse makes trials fail.
func refuse(errno syscall.Errno, what ...Tried) func(*Environment) {
	return func(m *Environment) {
		m.Try = func(now Tried) (Trial, error) {
			if slices.Contains(what, now) {
				return Trial{}, os.NewSyscallError("perf_event_open", errno)
			}
			return fine, nil
		}
	}
}

var all = []Tried{Command, Process, Everything}

// tried makes trials come out like this.
func tried(t Trial) func(*Environment) {
	return func(m *Environment) { m.Try = func(Tried) (Trial, error) { return t, nil } }
}

// closed makes opening the counter of cycles fail.
func closed(errno syscall.Errno) func(*Environment) {
	return func(m *Environment) {
		m.Open = func(*unix.PerfEventAttr, int, int) error { return os.NewSyscallError("perf_event_open", errno) }
	}
}

// without makes programs that are not there.
func without(names ...string) func(*Environment) {
	return func(m *Environment) {
		m.LookPath = func(name string) (string, error) {
			if slices.Contains(names, name) {
				return "", exec.ErrNotFound
			}
			return name, nil
		}
	}
}

// TestRingsWithoutTrial: where nothing can be recorded, the rings are those that there would be.
func TestRingsWithoutTrial(t *testing.T) {
	m, _ := healthy(t)
	_, use := perfring.DefaultRings()
	if c := m.rings(nil); c.State != OK || c.Detail != counts.RingsText(&use) || use.Each == 0 {
		t.Errorf("%+v", c)
	}
}

func TestShortfalls(t *testing.T) {
	const sudo = "sudo unspool record …"
	type files map[string]string // an empty text removes the file
	tests := []struct {
		name   string
		files  files
		change func(*Environment)
		check  string
		state  CheckState
		detail string
		fix    string
	}{
		{name: "another architecture", change: func(m *Environment) { m.Arch = "aarch64" },
			check: "kernel", state: Fail, detail: "x86_64 only"},
		{name: "a program for another architecture", change: func(m *Environment) { m.Built = "arm64" },
			check: "kernel", state: Fail, detail: "this is a program for arm64"},
		{name: "kernel before build IDs", change: func(m *Environment) { m.Release = "5.10.0-28-amd64" },
			check: "kernel", state: OK, detail: "Linux 5.10.0-28-amd64, x86_64"},
		{name: "kernel before clock IDs", change: func(m *Environment) { m.Release = "3.10.0" },
			check: "kernel", state: Warning, detail: "CLOCK_MONOTONIC"},
		{name: "no events at all", files: files{status: noCaps, kernel + "perf_event_paranoid": "3\n"},
			change: refuse(unix.EACCES, all...),
			check:  "command", state: Fail, detail: "perf_event_paranoid is 3",
			fix: "sudo sysctl kernel.perf_event_paranoid=2"},
		{name: "refused by a container", files: files{status: "CapPrm:\t000001ffffffffff\nSeccomp:\t2\n"},
			change: refuse(unix.EPERM, all...),
			check:  "command", state: Fail, detail: "seccomp", fix: "docker run --cap-add PERFMON"},
		{name: "no system call", change: refuse(unix.ENOSYS, all...),
			check: "whole machine", state: Fail, detail: "CONFIG_PERF_EVENTS"},
		{name: "an error nobody expects", change: refuse(unix.EXDEV, all...),
			check: "process", state: Fail, detail: "-p PID does not work: perf_event_open"},
		{name: "user stacks only", files: files{status: noCaps},
			change: tried(Trial{Samples: 9, User: 9, Complete: 9, UserOnly: true}),
			check:  "command", state: Warning, detail: ":u", fix: "sudo sysctl kernel.perf_event_paranoid=1"},
		{name: "own processes only", files: files{status: noCaps}, change: refuse(unix.EACCES, Everything),
			check: "whole machine", state: Warning, detail: "-p PID",
			fix: "sudo unspool record …"},
		{name: "own processes only, and these can be recorded", files: files{status: noCaps},
			change: refuse(unix.EACCES, Everything),
			check:  "process", state: OK, detail: "-p PID: 100 samples in 0.2 s, 100 % complete"},
		{name: "commands do not work", change: refuse(unix.EXDEV, Command),
			check: "command", state: Warning, detail: "-- COMMAND does not work"},
		{name: "-a does not work for another reason", change: refuse(unix.EINVAL, Everything),
			check: "whole machine", state: Warning, detail: "-a does not work: the kernel does not know"},
		{name: "processes outside of the container", change: tried(Trial{Samples: 93, User: 9, Outside: 7}),
			check: "whole machine", state: Warning, detail: "of 100 samples in 0.2 s, 7 are of processes outside",
			fix: "--pid=host"},
		{name: "stacks of others cannot be read", files: files{status: noCaps},
			change: tried(Trial{Samples: 100, User: 90, Complete: 40, Denied: 50}),
			check:  "whole machine", state: Warning, detail: "50 are of processes whose stacks you may not read",
			fix: sudo},
		{name: "stacks that do not reach their root", change: tried(Trial{Samples: 100, User: 50, Complete: 10}),
			check: "command", state: OK, detail: "20.0 % complete"},
		{name: "no samples", change: tried(Trial{}),
			check: "command", state: Warning, detail: "not one sample came in 0.2 s"},
		{name: "no PMU", change: closed(unix.ENOENT),
			check: "hardware counters", state: Warning, detail: "cpu-clock"},
		{name: "PMU held by another", change: closed(unix.EBUSY),
			check: "hardware counters", state: Warning, detail: "busy"},
		{name: "PMU for user code", change: func(m *Environment) {
			m.Open = func(a *unix.PerfEventAttr, _, _ int) error {
				if a.Bits&unix.PerfBitExcludeKernel == 0 {
					return unix.EACCES
				}
				return nil
			}
		}, check: "hardware counters", state: OK},
		{name: "paranoid is no number", files: files{kernel + "perf_event_paranoid": "x\n"},
			check: "perf_event_paranoid", state: Warning, detail: "no number"},
		{name: "paranoid hidden", files: files{kernel + "perf_event_paranoid": ""},
			check: "perf_event_paranoid", state: Warning},
		{name: "paranoid", files: files{kernel + "perf_event_paranoid": "4\n"},
			check: "settings", state: OK, detail: "perf_event_paranoid 4"},
		{name: "rings", change: tried(fine), check: "ring buffers", state: OK,
			detail: "2.0 MiB for the samples of each CPU, 192.0 MiB in all, full after 256 ms of samples with 7.0 KiB of stack"},
		{name: "small rings", change: func(m *Environment) {
			tried(Trial{Samples: 9, Ring: "ring of 512 KiB a CPU instead of 8192", Rings: inTrial})(m)
			m.Limit = func(int) (unix.Rlimit, error) { return unix.Rlimit{Cur: 8 << 20, Max: 1 << 30}, nil }
		}, check: "ring buffers", state: Warning,
			detail: "192.0 MiB in all, full after 256 ms of samples with 7.0 KiB of stack; " +
				"ring of 512 KiB a CPU instead of 8192: samples may be lost when the machine is busy " +
				"(perf_event_mlock_kb is 516, ulimit -l is 8192 KiB)",
			fix: roomForRings()},
		{name: "small rings, and the setting is hidden", files: files{kernel + "perf_event_mlock_kb": ""},
			change: tried(Trial{Ring: "ring of 4 KiB"}),
			check:  "ring buffers", state: Warning, detail: "is unknown",
			fix: roomForRings()},
		{name: "no rings", files: files{status: noCaps, kernel + "perf_event_mlock_kb": "0\n"},
			change: func(m *Environment) {
				m.Try = func(Tried) (Trial, error) { return Trial{}, os.NewSyscallError("mmap", unix.EPERM) }
			},
			check: "command", state: Fail, detail: "larger than the memory that you may lock",
			fix: roomForRings()},
		{name: "debuginfod", files: files{"debug": ""}, change: func(m *Environment) {
			m.Environ = func(name string) string { return map[string]string{"DEBUGINFOD_URLS": "https://x"}[name] }
		}, check: "debug information", state: OK, detail: "debuginfod"},
		{name: "no debug information", files: files{"debug": ""}, change: without("apt-get", "dnf", "zypper"),
			check: "debug information", state: Warning, detail: "set DEBUGINFOD_URLS"},
		{name: "debug information in Debian's archive",
			files: files{"debug": "", "etc/apt/sources.list.d/x.sources": "Suites: trixie-debug\n"},
			check: "debug information", state: Warning, detail: "can be installed", fix: "-dbgsym"},
		{name: "debug archive of Debian that is a comment",
			files: files{"debug": "", "etc/apt/sources.list": "# deb x trixie-debug main\ndeb x trixie main\n"},
			check: "debug information", state: Warning, detail: "set DEBUGINFOD_URLS"},
		{name: "debug information of Fedora", files: files{"debug": ""}, change: without("apt-get"),
			check: "debug information", state: Warning, fix: "sudo dnf debuginfo-install PACKAGE"},
		{name: "servers that sudo removed", files: files{"debug": "", "etc/debuginfod/x.urls": "https://x\n"},
			check: "debug information", state: Warning, detail: "sudo removes it", fix: "export DEBUGINFOD_URLS="},
		{name: "rate lowered by the kernel", files: files{kernel + "perf_event_max_sample_rate": "750\n"},
			check: "sample rate", state: Warning, detail: "750",
			fix: "sudo sysctl kernel.perf_event_max_sample_rate=100000"},
		{name: "rate unreadable", files: files{kernel + "perf_event_max_sample_rate": ""}, check: "sample rate",
			state: Warning},
		{name: "little time", files: files{kernel + "perf_cpu_time_max_percent": "1\n"},
			check: "sampling time", state: Warning, fix: "sudo sysctl kernel.perf_cpu_time_max_percent=25"},
		{name: "time not limited", files: files{kernel + "perf_cpu_time_max_percent": "0\n"},
			check: "settings", state: OK, detail: "not limit"},
		{name: "time unreadable", files: files{kernel + "perf_cpu_time_max_percent": ""}, check: "sampling time",
			state: Warning},
		{name: "short kernel stacks", files: files{kernel + "perf_event_max_stack": "16\n"},
			check: "kernel stack depth", state: Warning, fix: "sudo sysctl kernel.perf_event_max_stack=127"},
		{name: "depth unreadable", files: files{kernel + "perf_event_max_stack": ""}, check: "kernel stack depth",
			state: Warning},
		{name: "addresses hidden", files: files{"proc/kallsyms": "0000000000000000 T _text\n",
			kernel + "kptr_restrict": "2\n"},
			check: "kernel symbols", state: Warning, detail: "kptr_restrict is 2, so nobody sees them",
			fix: "sudo sysctl kernel.kptr_restrict=1"},
		{name: "addresses for CAP_SYSLOG", files: files{"proc/kallsyms": "0000000000000000 T _text\n",
			kernel + "kptr_restrict": "1\n"},
			check: "kernel symbols", state: Warning, detail: "kptr_restrict is 1, so seeing them takes CAP_SYSLOG",
			fix: sudo},
		{name: "addresses hidden by paranoid", files: files{"proc/kallsyms": "0000000000000000 T _text\n"},
			check: "kernel symbols", state: Warning,
			detail: "perf_event_paranoid is 2, so seeing them takes CAP_SYSLOG", fix: sudo},
		{name: "symbols at zero", files: files{"proc/kallsyms": "0000000000000000 A fixed_percpu_data\n" +
			"0000000000000000 A __per_cpu_start\nffffffff81000000 T _text\n"},
			check: "kernel symbols", state: OK, detail: "have names"},
		{name: "no kallsyms", files: files{"proc/kallsyms": ""}, check: "kernel symbols", state: Warning,
			detail: "no kallsyms"},
		{name: "tracefs not mounted", files: files{"sys/kernel/tracing": ""},
			check: "tracepoints", state: Warning, fix: "sudo mount -t tracefs nodev /sys/kernel/tracing"},
		{name: "mount point is empty", files: files{"sys/kernel/tracing/events/sched": ""},
			check: "tracepoints", state: Warning, fix: "sudo mount -t tracefs nodev /sys/kernel/tracing"},
		{name: "tracefs below debugfs",
			files: files{"sys/kernel/tracing": "", "sys/kernel/debug/tracing/events/sched/enable": "0\n"},
			check: "tracepoints", state: OK},
		{name: "no tracefs", files: files{"sys/kernel/tracing": "", "proc/filesystems": "\text4\n"},
			check: "tracepoints", state: Warning, detail: "has no tracefs"},
		{name: "no capability", files: files{status: noCaps},
			check: "capabilities", state: Warning, detail: "CAP_PERFMON", fix: sudo},
		{name: "status unreadable", files: files{status: ""}, check: "capabilities", state: Warning, fix: sudo},
		{name: "no processes", files: files{"proc/self": ""}, check: "running processes", state: OK},
		{name: "no precedence", change: func(m *Environment) {
			m.Priority = func() (string, bool) { return "ordinary", false }
		}, check: "priority", state: Warning, detail: "ordinary priority", fix: sudo},
		{name: "few files", change: func(m *Environment) {
			m.Limit = func(int) (unix.Rlimit, error) { return unix.Rlimit{Cur: 1024, Max: 1024}, nil }
		}, check: "open files", state: Warning, fix: "ulimit -n 65536"},
		{name: "files unknown", change: func(m *Environment) {
			m.Limit = func(int) (unix.Rlimit, error) { return unix.Rlimit{}, unix.EPERM }
		}, check: "open files", state: Warning},
		{name: "no perf, on Fedora", change: func(m *Environment) {
			m.LookPath = func(name string) (string, error) {
				if name == "dnf" || name == "go" {
					return name, nil
				}
				return "", exec.ErrNotFound
			}
		}, check: "tools nearby", state: Warning, detail: "go; not found: perf", fix: "sudo dnf install perf"},
		{name: "nothing nearby", change: func(m *Environment) {
			m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
		}, check: "tools nearby", state: Warning, detail: "none of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, root := healthy(t)
			for name, text := range tt.files {
				put(t, root, name, text)
			}
			if tt.change != nil {
				tt.change(m)
			}
			checks := m.Run()
			for _, c := range checks {
				if c.Name != tt.check {
					continue
				}
				if c.State != tt.state || !strings.Contains(c.Detail, tt.detail) || !strings.Contains(c.Fix, tt.fix) ||
					(c.Fix == "") != (tt.fix == "") {
					t.Errorf("%+v", c)
				}
				if (c.State == Fail) == Able(checks) {
					t.Errorf("Able says %v", Able(checks))
				}
				return
			}
			t.Errorf("no check %q among %+v", tt.check, checks)
		})
	}
}

func TestPrint(t *testing.T) {
	checks := []Check{
		{Name: "kernel", Detail: "Linux 6.12, x86_64"},
		{Name: "whole machine", State: Warning, Detail: "-a is not permitted; your own programs can be recorded " +
			"with -p PID or -- COMMAND",
			Fix: "sudo sysctl kernel.perf_event_paranoid=0", OwnOnly: true},
		{Name: "kernel symbols", State: Warning, Detail: "none", Fix: "sudo sysctl kernel.perf_event_paranoid=0"},
		{Name: "command", State: Fail, Detail: "from \x1b[31ma machine"},
	}
	const want = `✓ ok      kernel               Linux 6.12, x86_64
! warning whole machine        -a is not permitted; your own programs can be
                               recorded with -p PID or -- COMMAND
          fix: sudo sysctl kernel.perf_event_paranoid=0
! warning kernel symbols       none (same fix as for "whole machine")
✗ FAIL    command              from ?[31ma machine

Recording will not work here until what is marked FAIL is fixed.
`
	var b bytes.Buffer
	if err := Print(&b, checks, 80, false); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &b, want)
	}
	b.Reset()
	Print(&b, checks, 80, true)
	if !strings.Contains(b.String(), "\x1b[33m! warning\x1b[0m whole") {
		t.Errorf("%q", b.String())
	}
	if err := Print(broken{}, checks, 80, false); !errors.Is(err, unix.EPIPE) {
		t.Errorf("error %v", err)
	}
	b.Reset()
	Print(&b, checks[:3], 80, false)
	if !strings.Contains(b.String(), "\nReady to record your own programs only; 2 warnings: see above.\n") {
		t.Error(b.String())
	}
	for n, want := range []string{"Ready to record.", "record; 1 warning: see", "record; 2 warnings: see"} {
		b.Reset()
		Print(&b, []Check{{}, {State: CheckState(min(n, 1))}, {State: CheckState(n / 2)}}, 80, false)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%d warnings: %s", n, &b)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, unix.EPIPE }
