package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Capabilities that matter (include/uapi/linux/capability.h).
const (
	capIPCLock   = 14
	capSysPtrace = 19
	capSysAdmin  = 21
	capSyslog    = 34
	capPerfmon   = 38
)

// capSet is a set of capabilities as /proc/PID/status shows them.
type capSet uint64

func (s capSet) has(n int) bool { return s>>n&1 != 0 }

// mayPerf: CAP_PERFMON since Linux 5.8, CAP_SYS_ADMIN always (perfmon_capable).
func (s capSet) mayPerf() bool { return s.has(capPerfmon) || s.has(capSysAdmin) }

// status returns a field of /proc/self/status, "" if it is not there.
func (m *Environment) status(field string) string {
	text, err := readText(filepath.Join(m.Proc, "self/status"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// capabilities returns what this process is permitted: a recording has it in effect only while it opens events, and an
// error is explained afterwards.
func (m *Environment) capabilities() capSet {
	n, err := strconv.ParseUint(m.status("CapPrm"), 16, 64)
	if err != nil {
		return 0
	}
	return capSet(n)
}

// inUserNamespace reports whether this process is in a user namespace other than the machine's first.
func (m *Environment) inUserNamespace() bool {
	text, err := readText(filepath.Join(m.Proc, "self/uid_map"))
	return err == nil && strings.Join(strings.Fields(text), " ") != "0 0 4294967295"
}

// noNewPrivileges is what to do instead where neither sudo nor a copy with capabilities helps.
const noNewPrivileges = "start it elsewhere: this process can gain no privileges, by sudo or by a copy with " +
	"capabilities (no_new_privs)"

// sudo is the command that records with what this process lacks: the user's own, if it is a simple one. Root
// cannot have more, unless a container takes it away.
func (m *Environment) sudo(own bool) string {
	if strings.HasPrefix(m.status("Uid"), "0\t") {
		return m.containerFix()
	}
	if m.status("NoNewPrivs") == "1" {
		return noNewPrivileges
	}
	program := quote(m.Program)
	if m.Program == "" || slices.Contains(inSudosPath, filepath.Dir(m.Program)) {
		program = "unspool"
	}
	if own && simple(m.Args) {
		return "sudo " + program + " " + strings.Join(m.Args, " ")
	}
	return "sudo " + program + " record …   (without sudo: 'man unspool-record', WITHOUT ROOT)"
}

// inSudosPath are folders in which sudo finds programs.
var inSudosPath = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}

// simple reports whether arguments can be shown as they are, and run no COMMAND, which root should not run.
func simple(args []string) bool {
	line := strings.Join(args, " ")
	return len(args) > 0 && len(line) <= 100 && strings.Trim(line, plain+",:=@ ") == "" &&
		!slices.ContainsFunc(args, func(a string) bool {
			return a == "" || a == "--" || strings.Contains(a, " ")
		})
}

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-"

// quote makes one shell word of a path.
func quote(s string) string {
	if strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (m *Environment) privileges(caps capSet) Check {
	c := Check{Name: "capabilities"}
	var missing []string
	for _, need := range []struct {
		ok   bool
		name string
	}{
		{caps.mayPerf(), "CAP_PERFMON"},            // sample everything
		{caps.has(capSysPtrace), "CAP_SYS_PTRACE"}, // see into others' processes
		{caps.has(capSyslog), "CAP_SYSLOG"},        // kernel symbols
		{caps.has(capIPCLock), "CAP_IPC_LOCK"},     // ring buffers of any size
	} {
		if !need.ok {
			missing = append(missing, need.name)
		}
	}
	if len(missing) == 0 {
		c.Detail = "this process has all that recording can use"
		return c
	}
	c.State = Warning
	c.Detail = "missing: " + strings.Join(missing, ", ")
	c.Fix = m.sudo(false)
	return c
}

// otherProcesses tries what a recording reads of the processes that run. /proc/PID/maps takes
// PTRACE_MODE_READ, which Yama leaves alone; /proc/PID/mem takes PTRACE_MODE_ATTACH, which Yama restricts;
// opening what map_files has takes a capability.
func (m *Environment) otherProcesses() Check { return m.others(m.look()) }

func (m *Environment) others(s refusals) Check {
	c := Check{Name: "running processes", Detail: "their stacks, memory and mapped files can be read"}
	var lacks []string
	if s.maps > 0 {
		lacks = append(lacks, fmt.Sprintf("the mappings of %d of %d cannot be read: with -a, their stacks end at "+
			"once (unmapped)", s.maps, s.all))
	}
	if s.mem > 0 {
		text := fmt.Sprintf("the memory of %d of %d cannot be read", s.mem, s.all)
		if scope, err := m.sysctl("yama/ptrace_scope"); err == nil && scope > 0 {
			text += fmt.Sprintf(" (kernel.yama.ptrace_scope is %d)", scope)
		}
		lacks = append(lacks, text)
	}
	if s.files {
		lacks = append(lacks, "mapped files that were deleted or replaced since cannot be opened")
	}
	if len(lacks) == 0 {
		return c
	}
	c.State = Warning
	c.Detail = strings.Join(lacks, "; ")
	if caps := m.capabilities(); !caps.has(capSysPtrace) || s.files {
		c.Fix = m.sudo(false)
	}
	return c
}

// precedence: a recorder that has to wait for a CPU loses samples.
func (m *Environment) precedence() Check {
	c := Check{Name: "priority"}
	what, enough := m.Priority()
	if enough {
		c.Detail = "recording goes before other processes (" + what + ")"
		return c
	}
	c.State = Warning
	c.Detail = "recording has " + what + " priority, and does not go before all other processes: " +
		"when the machine is busy, samples may be lost, and less is read of stacks that copies cut off"
	c.Fix = m.sudo(false)
	return c
}

// wantedFiles is how many descriptors a recording may take: one per CPU with -a or a command, but
// one per thread and CPU with -p, and one for each image that is open.
const wantedFiles = 4096

func (m *Environment) openFiles() Check {
	c := Check{Name: "open files"}
	limit, err := m.Limit(unix.RLIMIT_NOFILE)
	n := limit.Max // the Go run-time raises the soft limit to it
	switch {
	case err != nil:
		c.State, c.Detail = Warning, err.Error()
	case n < wantedFiles:
		c.State = Warning
		c.Detail = fmt.Sprintf("at most %d: not enough to record a process of many threads with -p, which takes "+
			"one for each thread and CPU", n)
		c.Fix = raiseFiles
	case n == unix.RLIM_INFINITY:
		c.Detail = "no limit of open files"
	default:
		c.Detail = fmt.Sprintf("%d open files", n)
	}
	return c
}

// raiseFiles raises the limit of the shell that it is typed into.
const raiseFiles = "sudo prlimit --pid $$ --nofile=65536 && ulimit -n 65536"

// tools that read what is recorded.
func (m *Environment) tools() Check {
	c := Check{Name: "tools nearby"}
	var found, absent []string
	for _, name := range []string{"perf", "hotspot", "sysprof", "go"} {
		if _, err := m.LookPath(name); err == nil {
			found = append(found, name)
		} else {
			absent = append(absent, name)
		}
	}
	switch {
	case len(absent) == 0:
		c.Detail = strings.Join(found, ", ")
	case len(found) == 0:
		c.Detail = "none of " + strings.Join(absent, ", ")
	default:
		c.Detail = strings.Join(found, ", ") + "; not found: " + strings.Join(absent, ", ")
	}
	if len(absent) > 0 && absent[0] == "perf" {
		c.State = Warning
		c.Detail += " (unspool report reads recordings without it)"
		c.Fix = m.installPerf()
	}
	return c
}

func (m *Environment) installPerf() string {
	for _, p := range []struct{ program, command string }{
		{"apt-get", "sudo apt-get install linux-perf"},
		{"dnf", "sudo dnf install perf"},
		{"zypper", "sudo zypper install perf"},
		{"pacman", "sudo pacman -S perf"},
		{"apk", "sudo apk add perf"},
	} {
		if _, err := m.LookPath(p.program); err == nil {
			return p.command
		}
	}
	return ""
}
