package kallsyms

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrHidden means that all addresses of the list are zero: the kernel hides them from who opened it.
var ErrHidden = errors.New("kernel addresses are hidden")

// Hidden returns why the kernel hides them, as kallsyms_show_value (kernel/ksyms_common.c) decides by the settings
// below proc, and whether it hides them from everybody. If not, who opened the list had no CAP_SYSLOG.
func Hidden(proc string) (why string, fromAll bool) {
	setting := func(name string) (n int) { // 0 if it cannot be read
		text, _ := os.ReadFile(filepath.Join(proc, "sys/kernel", name))
		_, _ = fmt.Sscan(string(text), &n)
		return n
	}
	restrict, paranoid := setting("kptr_restrict"), setting("perf_event_paranoid")
	switch {
	case restrict > 1:
		return fmt.Sprintf("kptr_restrict is %d, so nobody sees them", restrict), true
	case restrict == 1:
		why = "kptr_restrict is 1, so "
	case paranoid > 1:
		why = fmt.Sprintf("perf_event_paranoid is %d, so ", paranoid)
	}
	return why + "seeing them takes CAP_SYSLOG (not a user namespace's)", false
}

// Hint returns why this machine's kernel hides them, and what helps.
func Hint() string {
	why, fromAll := Hidden("/proc")
	if fromAll {
		return why + "; with `sysctl kernel.kptr_restrict=1`, root does"
	}
	return why + ": run unspool as root, a copy of it with capabilities ('man unspool-record', WITHOUT ROOT), or the " +
		"container with --cap-add SYSLOG"
}
