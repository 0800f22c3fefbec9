package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// Calls that newer architectures do not have; see the lists of the same names without "old".
var (
	oldRuntimeCalls = []uintptr{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_POLL}
	oldRefusedCalls = []uintptr{
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN,
		unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	}
)

// openRules allow open(2) as openat(2), whose second argument is its first.
func openRules(how uint32, values []uint32) []rule {
	return []rule{{unix.SYS_OPEN, []check{{argument: 1, mask: how, values: values}}}}
}
