package programs

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is what a chain's stack belongs to, and so which frames are above its root.
type Kind string

const (
	Main      Kind = "main"      // the first thread: _start and libc's start above main
	Thread    Kind = "thread"    // another thread: clone3 and start_thread above
	Coroutine Kind = "coroutine" // a stack made by makecontext: its trampoline above
)

// Chain is the call chain that a program prints.
type Chain struct {
	Kind Kind
	// Frames are function names, demangled and without parameters, root first.
	// "*" stands for one or more frames that are not the program's own, "?" for
	// none or more.
	Frames []string
}

// ParseChain reads the line that a program prints.
func ParseChain(line string) (Chain, error) {
	f := strings.Fields(line)
	if len(f) < 3 || f[0] != "chain" {
		return Chain{}, fmt.Errorf("not a chain: %q", line)
	}
	return Chain{Kind: Kind(f[1]), Frames: f[2:]}, nil
}

// Leaf is the function that the program spends its time in.
func (c Chain) Leaf() string {
	for _, f := range slices.Backward(c.Frames) {
		if f != "*" && f != "?" {
			return f
		}
	}
	return ""
}

// Roots names the frames that may be above the chain's first frame, the nearest first,
// in glibc with its symbols; without these, a name is missing or another one.
func (c Chain) Roots() []string {
	switch c.Kind {
	case Main:
		return []string{"__libc_start_call_main", "__libc_start_main", "_start"}
	case Thread:
		return []string{"start_thread", "clone3"}
	default:
		return []string{"__start_context"}
	}
}

// Match compares a stack's function names, sampled function first, with the
// chain, and returns an error that names the first frame that differs. Parameters
// after a name and the compiler's marks for split functions (".cold") are ignored;
// a frame without a symbol may have any name.
//
// A stack that was taken higher up (before the leaf was called, or in a caller of
// it) matches when it is what the chain says up to there. Between one and four
// frames may stand above the chain's first frame, as in [Chain.Roots].
func (c Chain) Match(stack []string) error {
	own := make(map[string]bool)
	for _, f := range c.Frames {
		own[f] = f != "*" && f != "?"
	}
	var names []string // root first
	for _, f := range slices.Backward(stack) {
		names = append(names, function(f))
	}
	root := slices.Index(names, c.Frames[0])
	switch {
	case root < 0:
		return fmt.Errorf("no %s in the stack (root first): %s", c.Frames[0], strings.Join(names, " "))
	case root == 0:
		return fmt.Errorf("nothing above %s: the stack does not reach its root", c.Frames[0])
	case root > 4:
		return fmt.Errorf("%d frames above %s: %s", root, c.Frames[0], strings.Join(names[:root], " "))
	}
	if last := names[root-1]; own[last] {
		return fmt.Errorf("%s above %s", last, c.Frames[0])
	}
	names = names[root:]

	at := 0 // in names
	for _, want := range c.Frames {
		if at == len(names) {
			return nil // the sample was taken higher up
		}
		if want == "*" || want == "?" {
			from := at
			for at < len(names) && !own[names[at]] {
				at++
			}
			if want == "*" && at == from {
				return c.differs(names, at, "a frame of other code")
			}
			continue
		}
		if names[at] != want {
			return c.differs(names, at, want)
		}
		at++
	}
	if at < len(names) {
		return c.differs(names, at, "the end")
	}
	return nil
}

// function reduces a symbol to the function's name in the source.
func function(symbol string) string {
	name, _, _ := strings.Cut(symbol, "(")
	return strings.TrimSuffix(strings.TrimSpace(name), ".cold")
}

func (c Chain) differs(names []string, at int, want string) error {
	return fmt.Errorf("frame %d from %s is %s, want %s; the stack, root first: %s",
		at, c.Frames[0], names[at], want, strings.Join(names, " "))
}
