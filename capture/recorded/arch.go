package recorded

import (
	"fmt"
	"slices"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind/rule"
)

// checkArch refuses a recording with raw stacks of another architecture, whose registers have other numbers.
func checkArch(name string, r *perfdata.Reader) error {
	if !HasStacks(r.Events()) {
		return nil
	}
	arch := r.Text(perfdata.Arch)
	if arch == "" && hasOtherRegisters(r.Events()) {
		arch = "another architecture"
	}
	if arch == "" || isUnwound(arch) {
		return nil
	}
	return fmt.Errorf("%s was recorded on %s: only x86-64 and i386 stacks can be unwound", name, arch)
}

// isUnwound reports whether unspool unwinds stacks of an architecture, by its name (uname -m, feature ARCH).
func isUnwound(name string) bool {
	return slices.ContainsFunc(rule.Arches[:], func(a *rule.Arch) bool { return slices.Contains(a.Names, name) })
}

// hasOtherRegisters reports whether samples have general registers that x86 does not have. In a recording that
// was cut, nothing else tells the architecture. x86 has vector registers behind these (asm/perf_regs.h).
func hasOtherRegisters(events []perfring.Attr) bool {
	const general, vector = 24, 32 // PERF_REG_X86_64_MAX, PERF_REG_X86_XMM0
	for i := range events {
		if events[i].PerfEventAttr.Sample_regs_user>>general&(1<<(vector-general)-1) != 0 {
			return true
		}
	}
	return false
}
