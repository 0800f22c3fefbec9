package symbols

import (
	"bytes"
	"cmp"
	"slices"
)

// GCC, LLVM and BOLT put the code of a function that seldom runs elsewhere, under a symbol of its own: f.cold, or
// f.cold.0. It is a part of f. A copy of a function that GCC has made, such as f.part.0, f.constprop.0 or f.isra.0, is
// a function of its own.

// longestPart is how long the name of a part may be, in bytes, and mostParts how much memory finding the functions of
// an image's parts may take: enough for 200,000. If there are longer ones, or more, they are shown as functions.
const (
	longestPart = 4 << 10
	mostParts   = 64 << 20
)

// partOf returns the name of the function that a symbol is a part of, nil if it is the name of a whole function.
// numbered reports whether a number follows ".cold", as with BOLT.
func partOf(symbol []byte) (function []byte, numbered bool) {
	if len(symbol) > longestPart {
		return nil, false
	}
	for rest := symbol; ; function = rest {
		stem := bytes.TrimRight(rest, "0123456789")
		var isPart bool
		if rest, isPart = bytes.CutSuffix(rest, []byte(".cold")); isPart {
			continue
		}
		// LLVM's -fbasic-block-sections: landing pads, and others.
		if rest, isPart = bytes.CutSuffix(rest, []byte(".eh")); isPart {
			continue
		}
		if len(stem) == len(rest) {
			return function, numbered
		}
		if rest, isPart = bytes.CutSuffix(stem, []byte(".__part.")); isPart {
			continue
		}
		if rest, isPart = bytes.CutSuffix(stem, []byte(".cold.")); !isPart {
			return function, numbered
		}
		numbered = true
	}
}

// A scope is where a name stands for one function: in an image, or for local symbols in a source file of it.
type scope struct {
	name  string
	owner uint16
	local bool
	file  uint32 // see symbol
}

func (s *symbol) scope(name string) scope {
	if s.rank&localRank != 0 {
		return scope{name, s.owner, true, s.file}
	}
	return scope{name: name, owner: s.owner}
}

// A place is the address of a function, or of a part of one.
type place struct {
	addr    uint64
	several bool // there are others of the same name
}

// put adds an address of a name.
func put[K comparable](places map[K]place, name K, addr uint64) {
	if p, ok := places[name]; ok {
		places[name] = place{p.addr, p.several || p.addr != addr}
	} else {
		places[name] = place{addr: addr}
	}
}

// parts returns for each part, by the index of its symbol, the address of the function that it is a part of. It has
// none if the symbols do not tell which of several functions of that name this is.
func (b *builder) parts() map[int]uint64 {
	wanted := make(map[string]bool)
	const inMaps = 256 // bytes, about, of a part
	room := mostParts
	for i := range b.syms {
		if s := &b.syms[i]; s.part {
			name := cString(b.strings, s.name)
			if room -= len(name) + inMaps; room < 0 {
				return nil
			}
			function, _ := partOf(name)
			wanted[string(function)] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	functions := make(map[scope]place)
	for i := range b.syms {
		s := &b.syms[i]
		name := withoutVersion(cString(b.strings[:min(len(b.strings), int(s.name)+longestPart)], s.name))
		if !s.part && wanted[string(name)] {
			put(functions, s.scope(string(name)), s.addr)
		}
	}
	type claim struct {
		function uint64
		name     string
	}
	claims := make(map[claim]place) // of a function and the name of its part
	each := func(yield func(i int, c claim)) {
		for i := range b.syms {
			s := &b.syms[i]
			if !s.part {
				continue
			}
			name := cString(b.strings, s.name)
			function, numbered := partOf(name)
			local, isLocal := functions[scope{string(function), s.owner, true, s.file}]
			global, isGlobal := functions[scope{name: string(function), owner: s.owner}]
			of := local
			switch {
			case isLocal && isGlobal && numbered:
				continue // BOLT puts the parts of global functions behind the symbols of the last file
			case !isLocal && isGlobal:
				of = global
			case !isLocal:
				continue
			}
			if !of.several {
				yield(i, claim{of.addr, string(name)})
			}
		}
	}
	each(func(i int, c claim) { put(claims, c, b.syms[i].addr) })
	found := make(map[int]uint64)
	each(func(i int, c claim) {
		if !claims[c].several {
			found[i] = c.function
		}
	})
	return found
}

// A part of a function has an entry of its own in a table.
type part struct {
	index    int
	function uint64 // its address
}

// join gives parts the names of their functions.
func (t *Table) join(parts []part) {
	t.entries = make(map[uint64]uint64, len(parts))
	for _, p := range parts {
		i, ok := slices.BinarySearchFunc(t.funcs, p.function, func(e entry, addr uint64) int {
			return cmp.Compare(e.addr, addr)
		})
		if ok {
			t.funcs[p.index].name = t.funcs[i].name
			t.entries[t.funcs[p.index].addr] = p.function
		}
	}
}
