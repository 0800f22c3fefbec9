package main

import (
	"debug/elf"
	"path/filepath"
	"strings"

	"unspool/perfring"
	"unspool/vmas"
)

// The programs made to break joins tell in a register of each sample which way led to where it is, however
// deep the stack is: two bits for each function on it that has a number, and above them a word by which a way
// is known.
const wayMark = 0x3ade5105

// r15 is the register's place in perf's order of registers (arch/x86/include/uapi/asm/perf_regs.h).
const r15 = 23

// A way is what such a program tells, or what a stack shows, 0 if that is nothing.
type way uint32

// toldBy is the way that a sample tells.
func toldBy(sm *perfring.Sample) way {
	if v, ok := sm.Reg(r15); ok && v>>32 == wayMark {
		return way(v)
	}
	return 0
}

// A numbered function is one that a way has two bits for.
type numbered struct {
	low, high uint64
	digit     way
}

// numberedFunctions are those of a program.
type numberedFunctions []numbered

// learn looks for the functions in a process, unless they are known.
func (n *numberedFunctions) learn(space *vmas.Space) {
	if len(*n) > 0 || space == nil {
		return
	}
	for m := range space.Mappings() {
		if m.Prot&4 == 0 || !strings.HasPrefix(filepath.Base(m.File.Path), "breakjoins") {
			continue
		}
		f, err := elf.Open(m.File.Path)
		if err != nil {
			return // recorded long ago
		}
		defer f.Close()
		symbols, _ := f.Symbols()
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Off&^4095 == m.Offset {
				n.add(symbols, m.Start-p.Vaddr&^4095)
			}
		}
	}
}

func (n *numberedFunctions) add(symbols []elf.Symbol, bias uint64) {
	for i := range symbols {
		s := &symbols[i]
		if digits, ok := strings.CutPrefix(s.Name, "digit"); ok {
			*n = append(*n, numbered{low: bias + s.Value, high: bias + s.Value + s.Size, digit: way(digits[0] - '0')})
		}
	}
}

// way is the one that a stack shows, whose leaf is first.
func (n numberedFunctions) way(ips []uint64) (w way) {
	for i := range ips {
		ip := ips[len(ips)-1-i]
		for _, f := range n {
			if ip-1-f.low < f.high-f.low {
				w = w<<2 | f.digit
			}
		}
	}
	return w
}
