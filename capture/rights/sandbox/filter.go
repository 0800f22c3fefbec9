package sandbox

import (
	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// A rule allows one system call if its arguments pass the checks.
type rule struct {
	call   uintptr
	checks []check // all have to pass; empty for any arguments
}

// A check compares the low 32 bits of one argument: all arguments that are checked are ints, or flags whose
// high bits the kernel refuses.
type check struct {
	argument int
	mask     uint32   // which bits are compared; 0 for all
	values   []uint32 // one of which the argument has to be
	unless   *check   // or this check has to pass
}

// Offsets in struct seccomp_data (include/uapi/linux/seccomp.h).
const (
	dataNumber    = 0
	dataArch      = 4
	dataArguments = 16
	x32Bit        = 0x40000000
)

func statement(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(code uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | code, K: k, Jt: uint8(yes), Jf: uint8(no)}
}

func load(offset int) unix.SockFilter {
	return statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, uint32(offset))
}

func refuse(errno unix.Errno) unix.SockFilter {
	return statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno))
}

// assemble makes a filter from rules. A call that no rule allows fails with EPERM, or with ENOSYS if it is
// one of those that are to look absent.
func assemble(rules []rule, absent []uintptr) []unix.SockFilter {
	return append(assembleRules(rules, absent), refuse(unix.EPERM))
}

var allowed = statement(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW)

// assembleExcept makes a filter that allows all calls, but for those that are refused, and those for which
// there are rules, if their arguments do not pass.
func assembleExcept(refused []uintptr, rules []rule, absent []uintptr) []unix.SockFilter {
	program := assembleRules(rules, absent)
	for _, call := range refused {
		program = append(program, jump(unix.BPF_JEQ, uint32(call), 0, 1), refuse(unix.EPERM))
	}
	return append(program, allowed)
}

// assembleRules makes the part of a filter for rules. It continues after that part with calls for which there
// is none.
func assembleRules(rules []rule, absent []uintptr) []unix.SockFilter {
	program := []unix.SockFilter{
		load(dataArch), jump(unix.BPF_JEQ, auditArch, 1, 0), refuse(unix.EPERM),
		load(dataNumber), jump(unix.BPF_JGE, x32Bit, 0, 1), refuse(unix.ENOSYS),
	}
	for _, call := range absent {
		program = append(program, jump(unix.BPF_JEQ, uint32(call), 0, 1), refuse(unix.ENOSYS))
	}
	for _, r := range rules {
		var body []unix.SockFilter
		for i := range r.checks {
			body = append(body, r.checks[i].assemble()...)
		}
		body = append(body, allowed)
		program = append(program, jump(unix.BPF_JEQ, uint32(r.call), 0, len(body)))
		program = append(program, body...)
	}
	return program
}

// assemble makes the part of a filter for the check. If the check passes, the filter continues after that
// part.
func (c *check) assemble() []unix.SockFilter {
	part := []unix.SockFilter{load(dataArguments + 8*c.argument)}
	if c.mask != 0 {
		part = append(part, statement(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, c.mask))
	}
	var otherwise []unix.SockFilter
	if c.unless != nil {
		otherwise = c.unless.assemble()
	} else {
		otherwise = []unix.SockFilter{refuse(unix.EPERM)}
	}
	for i, v := range c.values {
		part = append(part, jump(unix.BPF_JEQ, v, len(c.values)-1-i+len(otherwise), 0))
	}
	return append(part, otherwise...)
}

// install installs a filter for all present and future threads of this process.
func install(program []unix.SockFilter) error {
	const all = unix.SECCOMP_FILTER_FLAG_TSYNC
	_, err := sys.SeccompSetFilter(all|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, program)
	if err == unix.EINVAL { // before Linux 5.7, a thread that cannot have the filter is the result
		var thread int
		if thread, err = sys.SeccompSetFilter(all, program); err == nil && thread != 0 {
			err = unix.ESRCH
		}
	}
	return err
}
