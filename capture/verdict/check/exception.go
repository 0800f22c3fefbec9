package check

import "strings"

// An Exception is why a frame may stand on another one that did not call it.
type Exception string

const (
	// Signal: the kernel makes a handler return to code that calls nothing, and that stands on what was
	// interrupted.
	Signal Exception = "signal"
	// Coroutine: whoever made the stack wrote down where its first function returns to.
	Coroutine Exception = "coroutine"
	// Longjmp: SP is another frame's already, or still, while longjmp, setcontext and their like change
	// registers.
	Longjmp Exception = "longjmp"
	// EhReturn: the unwinder of exceptions has moved SP to the frame whose handler it returns to.
	EhReturn Exception = "eh_return"
	// GoRuntime: Go's runtime writes return addresses itself: where goroutines end, where it lets code that
	// was interrupted go on, where it changes stacks.
	GoRuntime Exception = "go"
)

// exceptionsByCallee are functions whose return address may be any.
var exceptionsByCallee = map[string]Exception{
	"longjmp": Longjmp, "_longjmp": Longjmp, "__longjmp": Longjmp, "siglongjmp": Longjmp,
	"__libc_longjmp": Longjmp, "__libc_siglongjmp": Longjmp, "__longjmp_chk": Longjmp,
	"____longjmp_chk": Longjmp,
	"setcontext":      Longjmp, "swapcontext": Longjmp, "__setcontext": Longjmp, "__swapcontext": Longjmp,

	"_Unwind_RaiseException": EhReturn, "_Unwind_Resume": EhReturn, "_Unwind_ForcedUnwind": EhReturn,
	"_Unwind_Resume_or_Rethrow": EhReturn,

	"runtime.sigpanic": GoRuntime, "runtime.asyncPreempt": GoRuntime, "runtime.asyncPreempt.abi0": GoRuntime,
	"runtime.debugCallV2": GoRuntime, "runtime.gogo": GoRuntime, "gogo": GoRuntime,
	// A goroutine that has gone over to another stack is saved with a PC in this function, wherever it was.
	"runtime.systemstack_switch": GoRuntime, "runtime.systemstack_switch.abi0": GoRuntime,
}

// exceptionsByCaller are functions to which frames return that they did not call.
var exceptionsByCaller = map[string]Exception{
	"runtime.goexit": GoRuntime, "runtime.goexit.abi0": GoRuntime, "runtime.systemstack_switch": GoRuntime,
	"runtime.systemstack_switch.abi0": GoRuntime,
	"__start_context":                 Coroutine,
}

// exception returns why the edge may stand, though no call explains it; "" where nothing does.
func (e *edge) exception() Exception {
	if e.callerStart.signal || e.from.code.IsRestorer(e.back) {
		return Signal
	}
	if x := exceptionsByCallee[plainName(e.callee.name)]; x != "" {
		return x
	}
	if x := exceptionsByCaller[plainName(e.callerStart.name)]; x != "" {
		return x
	}
	if e.from.code.IsContextEnd(e.back) {
		return Coroutine
	}
	return ""
}

// plainName is a name without what compilers add to those of a function's parts.
func plainName(name string) string {
	for _, suffix := range []string{".warm", ".cold", ".part.0"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// isPartOf reports whether f is a part of g that compilers, or BOLT, have moved elsewhere. The jumps of g by a table
// lead there, too.
func (f *function) isPartOf(g *function) bool {
	if f.name == "" || f.name == g.name {
		return f.name != "" && f.entry == g.entry && f.parts[1] != g.parts[1]
	}
	return plainName(f.name) == plainName(g.name)
}
