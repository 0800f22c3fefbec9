package check

import (
	"strings"

	"unspool/vmas"
)

// A Verdict is what is said of an edge.
type Verdict uint8

const (
	Unread    Verdict = iota // no file holds the caller's code, or it cannot be read
	Right                    // a call that leads, or may lead, to the callee
	Undecided                // a direct call, from whose target an indirect jump may lead to the callee
	Excepted                 // no call, and known to be none: see [Exception]
	NoCall                   // the return address follows no call
	Elsewhere                // a direct call of a function that does not lead to the callee's

	NumVerdicts = iota
)

// Wrong reports whether the edge cannot be.
func (v Verdict) Wrong() bool { return v == NoCall || v == Elsewhere }

// Words returns why an edge is wrong.
func (v Verdict) Words() string {
	if v == NoCall {
		return "the return address follows no call"
	}
	return "the call leads to another function"
}

// A judgement is a verdict with what it is about.
type judgement struct {
	verdict   Verdict
	exception Exception
	about     [2]string // caller and callee, in words, where the edge is wrong
	// interrupted means that the caller is no caller: it was interrupted by a signal, and stands at its
	// address.
	interrupted bool
}

// judge holds an edge against the code. callee is where the callee stands; exact means that this is an
// instruction that was interrupted, and no return address.
func (c *Checker) judge(space *vmas.Space, caller, callee uint64, exact bool) judgement {
	if c.isRestorer(space, callee) {
		return judgement{verdict: Excepted, exception: Signal, interrupted: true}
	}
	from := c.images.at(space, caller-1)
	if !from.readable() {
		return judgement{verdict: Unread}
	}
	at := callee
	if !exact {
		at--
	}
	e := edge{c: c, space: space, from: from, to: c.images.at(space, at), back: from.addr + 1}
	e.caller = from.bin.function(from.addr)
	e.callerStart = from.bin.function(e.back)
	if e.to.bin != nil && e.to.readable() {
		e.callee = e.to.bin.function(e.to.addr)
	}
	v := e.verdict()
	if !v.Wrong() {
		return judgement{verdict: v}
	}
	if v != NoCall && e.to.lost {
		return judgement{verdict: Unread}
	}
	if x := e.exception(); x != "" {
		return judgement{verdict: Excepted, exception: x}
	}
	return judgement{verdict: v, about: [2]string{from.bin.place(e.back, &e.caller), e.to.place(&e.callee)}}
}

// isRestorer reports whether an address is in what signal handlers return to, so that its caller is what was
// interrupted.
func (c *Checker) isRestorer(space *vmas.Space, pc uint64) bool {
	s := c.images.at(space, pc)
	if !s.readable() {
		return false
	}
	f := s.bin.function(s.addr)
	return f.signal || s.code.IsRestorer(s.addr)
}

// An edge is a caller's return address, and a callee.
type edge struct {
	c           *Checker
	space       *vmas.Space
	from, to    spot
	back        uint64   // the return address, in its image
	caller      function // around the call
	callerStart function // around the return address itself
	callee      function
}

// verdict judges by the code alone.
func (e *edge) verdict() Verdict {
	call := e.from.code.CallBefore(e.back)
	switch {
	case call.Indirect:
		return Right
	case !call.Direct:
		return NoCall
	}
	target := call.Target
	if !e.from.long {
		target &= 1<<32 - 1
	}
	w := way{edge: e}
	w.add(e.from, target)
	return w.follow()
}

// A way is a search for the callee from the target of a direct call, through code that does not call.
type way struct {
	*edge
	todo []stop
	seen map[stop]bool
	open bool // it may lead where nobody can tell
}

// A stop is where a way leads.
type stop struct {
	bin  *binary
	addr uint64
}

// maxStops bounds how many functions a way leads through.
const maxStops = 256

func (w *way) add(in spot, addr uint64) {
	s := stop{in.bin, addr}
	if w.seen == nil {
		w.seen = make(map[stop]bool)
	}
	switch {
	case w.seen[s]:
	case len(w.seen) >= maxStops:
		w.open = true
	default:
		w.seen[s] = true
		w.todo = append(w.todo, s)
	}
}

// follow goes on until the callee is found.
func (w *way) follow() Verdict {
	for len(w.todo) > 0 {
		if !w.c.images.step() {
			return Undecided
		}
		next := w.todo[0]
		w.todo = w.todo[1:]
		if w.leads(next) {
			return Right
		}
	}
	if w.open {
		return Undecided
	}
	return Elsewhere
}

// leads reports whether the callee stands in the function at a stop; where not it adds the next stops.
func (w *way) leads(s stop) bool {
	f := s.bin.function(s.addr)
	same := s.bin == w.to.bin && w.to.readable()
	if same && (f.holds(w.to.addr) || w.callee.holds(s.addr)) {
		return true
	}
	if name, ok := f.stub(); ok {
		return w.linked(name)
	}
	in := w.from
	if s.bin != in.bin {
		in = w.c.images.mapped(w.space, s.bin)
	}
	if !in.readable() || !w.from.long || isThunk(f.name) {
		w.open = true
		return false
	}
	if !f.known() {
		f = s.bin.padding(in.code, s.addr, &w.c.images.code)
		if same && f.holds(w.to.addr) {
			return true
		}
	} else if same && !w.callee.known() {
		w.open = true // nobody says where the callee's begins
	}
	if !f.known() {
		w.open = true
		return false
	}
	out := s.bin.leaves(in.code, &f, &w.c.images.code)
	if out.indirect && same && w.callee.isPartOf(&f) {
		return true
	}
	// Generated code may go on in the frame of the function that jumps there, as LuaJIT's traces do.
	w.open = w.open || out.open || out.indirect && !w.to.readable()
	for _, target := range out.targets {
		w.add(in, target)
	}
	return false
}

// linked follows the stub of a procedure linkage table to the functions of that name.
func (w *way) linked(name string) bool {
	if w.to.bin != nil && isLoader(w.to.bin.Name()) {
		return true // it finds the function at the first call
	}
	found := false
	for bin, in := range w.c.images.all(w.space) {
		for _, x := range bin.exported(name, &w.c.images.names) {
			found = true
			if x.Chosen && bin == w.to.bin {
				return true
			}
			w.open = w.open || x.Chosen
			w.add(in, x.Addr)
		}
	}
	if !found { // of an image that is gone, or by a name that its resolver has
		w.open = true
	}
	return false
}

// isLoader reports whether an image is the dynamic linker.
func isLoader(name string) bool {
	return strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl") ||
		strings.HasPrefix(name, "ld-2.")
}

// isThunk recognises functions that call through a register for their caller, by way of a return
// (retpolines).
func isThunk(name string) bool {
	return strings.HasPrefix(name, "__x86_indirect_thunk") || strings.HasPrefix(name, "__llvm_retpoline")
}
