package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// TestEdgesAreKept asks by turns about two callees of each of two calls: what is kept of one is not said of another,
// nor of what is around a callee.
func TestEdgesAreKept(t *testing.T) {
	m, im, at := edgesProgram(t)
	for range 3 {
		for _, c := range []struct {
			call, callee string
			other        bool
		}{
			{"behind_first", "first", false}, {"behind_first", "second", true}, {"behind_first", "third", false},
			{"behind_second", "first", true}, {"behind_second", "second", false}, {"behind_second", "third", true},
			{"behind_first", "hole", true}, {"behind_pointer", "first", false}, {"behind_pointer", "hole", false},
		} {
			for off := range uint64(2) {
				if got := im.CallsOther(m, at[c.call], at[c.callee]+off-m.Start, true); got != c.other {
					t.Errorf("%s, %s+%d: %v", c.call, c.callee, off, got)
				}
			}
		}
		for call, other := range map[string]bool{"behind_first": true, "behind_pointer": false} {
			if got := im.CallsOther(m, at[call], module.Elsewhere, true); got != other {
				t.Errorf("%s, another file: %v", call, got)
			}
		}
	}
	kept := 0
	for _, s := range im.edges.sets {
		for _, e := range s {
			if e.size != 0 {
				kept++
			}
		}
	}
	// Four of the first call, as the hole counts, and the other file; three of the second; one of the one by a pointer.
	if kept != 5+3+1 {
		t.Errorf("%d edges are kept: %+v", kept, im.edges.sets)
	}
}

// TestEdgeOfALatePiece asks while a piece of the file is missing, and when it has come.
func TestEdgeOfALatePiece(t *testing.T) {
	m, im, at := edgesProgram(t)
	back, callee := at["behind_first"], at["second"]-m.Start
	im.contents.slow = true // all is read as chunks
	if im.CallsOther(m, back, callee, true) {
		t.Error("it was known at once")
	}
	if im.contents.chunks[0].data != nil {
		t.Error("the file was read")
	}
	late := newTask(func() error { return nil }, nil)
	im.wanted = &late.job
	for _, slow := range []bool{true, false} {
		if im.contents.slow = slow; im.CallsOther(m, back, callee, false) {
			t.Errorf("it was known before the piece came; read as chunks: %v", slow)
		}
	}
	if len(im.edges.sets) != 0 {
		t.Errorf("what was not known is kept: %+v", im.edges.sets)
	}
	im.contents.slow = true
	close(late.done)
	if !im.CallsOther(m, back, callee, false) {
		t.Error("it is not known when the piece has come")
	}
}

// TestManyEdges keeps more edges than there is room for at first, and no more than there may be.
func TestManyEdges(t *testing.T) {
	var e edges
	const some = 5 * fewestSets
	for i := range uint32(some) {
		e.put(edge{back: 16 * i, low: 7, size: 1 | i%2*otherBit})
	}
	found := 0
	for i := range uint32(some) {
		switch a := e.get(16*i, 7); {
		case a == rule.Unasked:
		case (a == rule.Yes) != (i%2 != 0):
			t.Fatalf("edge %d: %v", i, a)
		default:
			found++
		}
	}
	if found < some*3/4 {
		t.Errorf("%d of %d are kept", found, some)
	}
	for i := range uint32(20 * 5 * mostSets) {
		e.put(edge{back: i, low: i, size: 1})
	}
	if len(e.sets) != mostSets {
		t.Errorf("%d sets", len(e.sets))
	}
}

// edgesProgram is a program with calls, and the addresses of its labels.
func edgesProgram(t *testing.T) (m *vmas.Mapping, im *Image, at map[string]uint64) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	source := filepath.Join(t.TempDir(), "edges.s")
	path := source[:len(source)-2]
	if err := os.WriteFile(source, []byte(`
	.text
	.globl _start
	.macro function name:req, code:vararg
	.type \name, @function
\name:
	.cfi_startproc
	nop
	\code
	.cfi_endproc
	.size \name, .-\name
	.endm
	.type hole, @function
	.type behind_first, @function
	.type behind_second, @function
	.type behind_pointer, @function
	function _start, nop
	.cfi_startproc
	call first
behind_first:
	call second
behind_second:
	call *%rax
behind_pointer:
	nop
	.cfi_endproc
	function first, jmp third
	function second, ret
hole:
	nop
	ret
	function third, ret
	.section .note.GNU-stack,"",@progbits
`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "", gcc, "-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", path, source)
	m, im = mapHole(t, New(Config{Proc: "/proc"}), path)
	at = make(map[string]uint64)
	for _, name := range []string{"first", "second", "third", "hole", "behind_first", "behind_second", "behind_pointer"} {
		off, ok := im.offset(programs.AddressOf(t, path, name))
		if !ok {
			t.Fatalf("no %s", name)
		}
		at[name] = m.Start + off
	}
	return m, im, at
}
