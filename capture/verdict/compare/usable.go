package compare

import (
	"slices"
	"strings"

	"unspool/capture/profile"
)

// Usability is what is known of a stack by frame pointers.
type Usability uint8

const (
	No Usability = iota
	Yes
	// Unknown: the two stacks are equal as far as both are known, and what follows is not.
	Unknown
)

// PairState is what the two stacks of a sample are good for. Its frames go from the sampled one to the entry: main, the
// function that a thread begins with, or what the program itself begins with. Start code, from which the entry was
// called, does not count.
type PairState struct {
	// Usable: frame pointers have all frames up to the entry.
	Usable Usability
	// False: frame pointers show a call that never was, between two functions that call each other nowhere on DWARF's
	// stack. Where that stack ends too early to tell, no call is wrong. A Usable stack is not False.
	False bool
	// NoCode: frame pointers lead to a word that is not an address of code before they reach the entry. Such a word
	// is no caller, so this alone is not False.
	NoCode  bool
	Reaches bool // DWARF's stack has the entry
	Lost    int  // frames up to the entry that frame pointers miss
}

// chains are the two user stacks of a sample as frames, leaf first.
type chains struct {
	dwarf, fp []int32
	entry     int  // index in dwarf; -1 if DWARF's stack does not reach it
	complete  bool // dwarf reaches its root
	open      bool // frame pointers may go on where the recording has no memory
	parted    int  // see verdict
	// function returns the number of a frame's function, -1 if the frame is not code.
	function func(frame int32) int32
}

// judge says what the stacks are good for, and returns the calls that frame pointers show and that never were, each
// once.
func (c *chains) judge() (s PairState, wrong []call) {
	s.Reaches = c.entry >= 0
	switch {
	case s.Reaches && (c.parted < 0 || c.parted > c.entry):
		s.Usable = Yes
		return s, nil
	case !s.Reaches && (c.parted < 0 || c.parted == len(c.dwarf) && !c.ledAstray()):
		s.Usable = Unknown
	case c.open && c.parted == len(c.fp):
		s.Usable = Unknown
	}
	if s.Usable == No {
		s.Lost, _ = c.lost()
	}
	wrong, s.NoCode = c.wrongCalls()
	s.False = len(wrong) > 0
	return s, wrong
}

// ledAstray reports whether frame pointers lead from the end of DWARF's stack to a word that is not code.
func (c *chains) ledAstray() bool { return c.parted < len(c.fp) && c.function(c.fp[c.parted]) < 0 }

// class moves stacks that differ in start code, too, to the class that they would be in without it.
func (c *chains) class(of Class) Class {
	switch of {
	case LeafCaller, Middle, Early, Astray, Cut:
	default:
		return of
	}
	if !c.complete {
		return of
	}
	if c.parted > c.entry {
		return StartCode
	}
	lost, reached := c.lost()
	switch {
	case !reached:
		return of
	case lost == 1 && c.entry > 1 && slices.Equal(c.fp[1:c.entry], c.dwarf[2:c.entry+1]):
		return LeafCaller
	}
	return Middle
}

// lost counts the frames up to the entry that frame pointers miss, and reports whether they reach the entry.
func (c *chains) lost() (lost int, reached bool) {
	counted := c.dwarf
	if c.entry >= 0 {
		counted = counted[:c.entry+1]
	}
	at, found := 0, 0
	for _, f := range c.fp {
		next := at
		for next < len(counted) && counted[next] != f {
			next++
		}
		if next == len(counted) {
			break
		}
		at = next + 1
		found++
	}
	return len(counted) - found, at == len(counted)
}

// wrongCalls returns the calls that frame pointers show and that never were, each once, and reports whether a word that
// is not code is in the place of a caller. A stack that is usable has neither.
func (c *chains) wrongCalls() (wrong []call, noCode bool) {
	// Both stacks have the same calls up to where they part.
	from := c.parted - 1
	if from < 0 {
		if from = 0; c.parted < 0 {
			return nil, false
		}
	}
	calls, start := make(map[call]bool, len(c.dwarf)), make(map[int32]bool)
	for i, f := range c.dwarf {
		if i > 0 {
			calls[call{c.function(f), c.function(c.dwarf[i-1])}] = true
		}
		if c.entry >= 0 && i > c.entry {
			start[c.function(f)] = true
		}
	}
	entries, at := c.entries(), 0
	for i, f := range c.fp[:max(0, len(c.fp)-1)] {
		callee, caller := c.function(f), c.function(c.fp[i+1])
		switch {
		case c.entry >= 0:
			if f == c.dwarf[c.entry] {
				entries--
			}
			if start[callee] || entries == 0 {
				return wrong, noCode // in start code, or at the entry
			}
		case !c.complete: // it is known who called a frame that DWARF's stack has, if that is not its outermost one
			for at < len(c.dwarf) && c.dwarf[at] != f {
				at++
			}
			if at++; at >= len(c.dwarf) {
				return wrong, noCode || caller < 0 && callee >= 0
			}
		}
		switch {
		case i < from:
		case caller < 0:
			noCode = true
		case callee >= 0 && !calls[call{caller, callee}]:
			calls[call{caller, callee}] = true // so that it is returned once
			wrong = append(wrong, call{caller, callee})
		}
	}
	return wrong, noCode
}

// entries is how often the entry's place is on the stack: in recursion, the outermost one is the entry.
func (c *chains) entries() (n int) {
	if c.entry < 0 {
		return 0
	}
	for _, f := range c.dwarf[:c.entry+1] {
		if f == c.dwarf[c.entry] {
			n++
		}
	}
	return n
}

// Judge finds what the stacks of the groups are good for, and leaves start code out of their classes.
func (c *Comparison) Judge() {
	first, starts := firsts(c.DWARF), newStarts(c.DWARF)
	function := func(frame int32) int32 {
		if c.DWARF.Frames[frame].Kind == profile.Unmapped {
			return -1
		}
		return first[frame]
	}
	c.wrong = make(map[int32][]call)
	for i := range c.Groups {
		g := &c.Groups[i]
		s := c.chains(g, starts, function)
		var wrong []call
		if g.PairState, wrong = s.judge(); len(wrong) > 0 {
			c.wrong[int32(i)] = wrong
		}
		g.Class = s.class(g.Class)
	}
}

// chains returns the stacks of a group.
func (c *Comparison) chains(g *PairGroup, starts *starts, function func(frame int32) int32) *chains {
	s := chains{
		dwarf: userFrames(c.DWARF, g.DWARF, g.Kernel), fp: userFrames(c.FP, g.FP, g.Kernel),
		complete: g.End == profile.Complete, open: g.Open, parted: g.Parted, function: function,
	}
	s.entry = starts.entry(s.dwarf, s.complete)
	return &s
}

// userFrames are the frames of a stack, leaf first, without those of the kernel at its leaf.
func userFrames(p *profile.Profile, leaf int32, kernel int) (frames []int32) {
	for node := above(p, leaf, kernel); node > 0; node = p.Nodes[node].Parent {
		frames = append(frames, p.Nodes[node].Frame)
	}
	return frames
}

// above is the node so many frames above a node, 0 where the stack has no such frame.
func above(p *profile.Profile, node int32, frames int) int32 {
	for ; frames > 0 && node > 0; frames-- {
		node = p.Nodes[node].Parent
	}
	return max(node, 0)
}

// startNames are the functions from which the entry of a program or of a thread is called.
var startNames = map[string]bool{
	"_start": true, "_start_c": true, "__libc_start_main": true, "__libc_start_main_impl": true,
	"__libc_start_call_main": true, "libc_start_main_stage2": true, "generic_start_main": true,
	"start_thread": true, "clone": true, "__clone": true, "clone3": true, "__clone3": true, "__clone_internal": true,
	"__start_context": true, "_dl_start_user": true,
	"runtime.goexit": true, "runtime.main": true, "runtime.mstart": true, "runtime.mstart0": true,
	"runtime.mstart1": true, "runtime.rt0_go": true,
}

// starts finds the start code of stacks.
type starts struct {
	p    *profile.Profile
	kind []frameKind // by frame
}

type frameKind uint8

const (
	unseen    frameKind = iota
	ordinary            // a function with a name, or code of another image
	startCode           // by its name
	library             // code of the C library without a name
	unnamed             // code of another image without a name
)

func newStarts(p *profile.Profile) *starts { return &starts{p, make([]frameKind, len(p.Frames))} }

func (s *starts) of(frame int32) frameKind {
	if s.kind[frame] == unseen {
		s.kind[frame] = s.find(&s.p.Frames[frame])
	}
	return s.kind[frame]
}

func (s *starts) find(f *profile.Frame) frameKind {
	image := s.p.Images[f.Image].Name
	switch {
	case !f.Known && isCLibrary(image):
		return library
	case !f.Known:
		return unnamed
	}
	name, _, _ := strings.Cut(strings.TrimSuffix(f.Plain(), ".abi0"), "@")
	if startNames[name] || name == "start" && isCLibrary(image) { // musl's, of a thread
		return startCode
	}
	return ordinary
}

// isCLibrary reports whether an image is the C library, by its name.
func isCLibrary(image string) bool {
	for _, prefix := range []string{"libc.so", "libc-2.", "libpthread", "ld-musl-"} {
		if strings.HasPrefix(image, prefix) {
			return true
		}
	}
	return false
}

// mostLibrary is how many frames of the C library without a name are taken for start code: glibc has two above main
// and two above a thread's function, of which one or none has a name in a library without a symbol table.
const mostLibrary = 2

// entry finds the outermost frame of a stack that is not start code, -1 if the stack ends before it. A stack of
// nothing but start code has its leaf as its entry.
func (s *starts) entry(stack []int32, complete bool) int {
	at, without := len(stack)-1, mostLibrary
	if complete && at > 0 && s.of(stack[at]) == unnamed && s.isLibrary(stack[at-1]) {
		at-- // _start of a program without a symbol table
	}
	for ; at > 0; at-- {
		if kind := s.of(stack[at]); kind == library && complete && without > 0 {
			without--
		} else if kind != startCode {
			break
		}
	}
	if !complete && at == len(stack)-1 && (at < 0 || s.of(stack[at]) != startCode && !s.isMain(stack[at])) {
		return -1
	}
	return at
}

// isLibrary reports whether a frame is code of the C library.
func (s *starts) isLibrary(frame int32) bool {
	return isCLibrary(s.p.Images[s.p.Frames[frame].Image].Name)
}

func (s *starts) isMain(frame int32) bool {
	f := &s.p.Frames[frame]
	return f.Known && f.Plain() == "main"
}
