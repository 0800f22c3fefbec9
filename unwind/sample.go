package unwind

import (
	"encoding/binary"
	"math/bits"

	"unspool/unwind/rule"
)

// This file holds what a walk begins with: the registers of a sample, and its copy of the stack.

// Regs is a set of register values by DWARF number, with a bit for each one
// whose value is known. It has room for those of any architecture.
type Regs struct {
	Value [rule.MaxRegs]uint64
	Known uint32
}

func (r *Regs) set(n int, v uint64) {
	r.Value[n] = v
	r.Known |= 1 << n
}

func (r *Regs) has(n int) bool { return r.Known>>n&1 != 0 }

// Get gives the value of the register with DWARF number n.
func (r *Regs) Get(n int) (v uint64, known bool) {
	if n < 0 || n >= rule.MaxRegs {
		return 0, false
	}
	return r.Value[n], r.has(n)
}

// SetPerf fills r from the user registers of a sample of code of arch: regs are the values of those
// that mask (perf_event_attr.sample_regs_user) selects, as little-endian words of eight bytes. It
// does not allocate.
func (r *Regs) SetPerf(arch *rule.Arch, mask uint64, regs []byte) {
	r.Known = 0
	order := arch.PerfOrder
	for mask &= 1<<len(order) - 1; mask != 0 && len(regs) >= 8; mask &= mask - 1 {
		if d := order[bits.TrailingZeros64(mask)]; d >= 0 {
			r.set(int(d), binary.LittleEndian.Uint64(regs)&arch.Mask)
		}
		regs = regs[8:]
	}
}

// SP is the DWARF number of the stack pointer of x86-64, for [Regs.Get].
const SP = rule.SP

// DropUnsaved forgets the registers of x86-64 that the kernel had not saved when an
// NMI sampled it in kernel mode: it then reports RBX and R12 to R15 as -1
// (perf_get_regs_user, arch/x86/kernel/perf_regs.c). It is for samples taken
// in kernel mode; -1 is a value like any other in user mode.
func (r *Regs) DropUnsaved() {
	for _, n := range [...]int{rule.BX, 12, 13, 14, 15} {
		if r.Value[n] == ^uint64(0) {
			r.Known &^= 1 << n
		}
	}
}

// Stack is a bounded view of a sample's copy of the user stack.
type Stack struct {
	// Base is the address of the first byte: the sampled SP. The red zone
	// below it is not in the copy.
	Base uint64
	// Data is the copy, already cut to dyn_size. It points into the ring.
	Data []byte
	// Asked is how many bytes the kernel was to copy. It stops earlier at the
	// top of the stack, and at a page that is not there yet.
	Asked uint64
	// Rest is what follows on the stack behind Data, and Above what there is beyond a large frame, as far as
	// these were read from the process while the thread stood where it was sampled.
	Rest  []byte
	Above Piece
	// Wished is memory that earlier walks of the thread lacked (see [Result.Wish]), read at the same moment as Rest.
	Wished []Piece
	// Growth is set if a goroutine was getting a larger stack at that moment.
	Growth GrownStack
	// Thread is the TID of the thread whose stack it is, 0 when that is not known. A walk reuses what is
	// unchanged since the last walk of that thread.
	Thread uint32

	missed uint64 // the address that could not be read last in a walk, 0 if there was none
}

// A Piece is a copy of memory of a process.
type Piece struct {
	Addr uint64 // of the first byte, in the process
	Data []byte // the caller's; a walk does not change it
}

// has reports whether the piece has the byte at addr.
func (p *Piece) has(addr uint64) bool { return addr-p.Addr < uint64(len(p.Data)) }

// holds reports whether the copy, or what was read then, has the byte at addr.
func (s *Stack) holds(addr uint64) bool { return s.isOn(addr) || s.wished(addr) != nil }

// isOn reports whether the copy, or what was read then of the same stack, has the byte at addr.
func (s *Stack) isOn(addr uint64) bool {
	return addr-s.Base < uint64(len(s.Data)+len(s.Rest)) || s.Above.has(addr)
}

// wished is the piece of Wished that has the byte at addr, nil if none has.
func (s *Stack) wished(addr uint64) *Piece {
	for i := range s.Wished {
		if p := &s.Wished[i]; p.has(addr) {
			return p
		}
	}
	return nil
}

// copied reports whether the copy has the byte at addr.
func (s *Stack) copied(addr uint64) bool { return addr-s.Base < uint64(len(s.Data)) }

// word reads the eight bytes at addr.
func (s *Stack) word(addr uint64) (uint64, bool) {
	off := addr - s.Base
	if uint64(len(s.Data)) < 8 || off > uint64(len(s.Data))-8 {
		return s.uint(addr, 8)
	}
	return binary.LittleEndian.Uint64(s.Data[off:]), true
}

// uint reads size bytes, 1 to 8, at addr as an unsigned integer.
func (s *Stack) uint(addr uint64, size int) (uint64, bool) {
	data, off := s.Data, addr-s.Base
	if copied := uint64(len(data)); off >= copied {
		switch {
		case off-copied < uint64(len(s.Rest)):
			data, off = s.Rest, off-copied
		case s.Above.has(addr):
			data, off = s.Above.Data, addr-s.Above.Addr
		default:
			p := s.wished(addr)
			if p == nil {
				return 0, false
			}
			data, off = p.Data, addr-p.Addr
		}
	}
	if len(data) < size || off > uint64(len(data)-size) {
		return 0, false
	}
	switch size { // words need no copy
	case 4:
		return uint64(binary.LittleEndian.Uint32(data[off:])), true
	case 8:
		return binary.LittleEndian.Uint64(data[off:]), true
	}
	var b [8]byte
	copy(b[:size], data[off:])
	return binary.LittleEndian.Uint64(b[:]), true
}

// miss returns why a word at addr could not be read: the dump was too short, the word is
// elsewhere, or no frame would have it there.
func (s *Stack) miss(addr uint64) Reason {
	s.missed = addr
	const (
		farthest  = 1 << 30 // beyond the largest stacks in use
		nextFrame = 8 << 20 // the usual limit of a stack, and so of a frame: where a copy ended early
	)
	if addr < s.Base {
		if s.inRedZone(addr) {
			return NotCopied
		}
		return elsewhere(addr)
	}
	off := addr - s.Base
	if off <= nextFrame || uint64(len(s.Data)) >= s.Asked && off <= farthest {
		return DumpTooShort
	}
	return elsewhere(addr)
}

// inRedZone reports whether addr is on the stack but below the copy, where a function may keep
// words without moving SP (System V ABI, AMD64 supplement, § 3.2.2).
func (s *Stack) inRedZone(addr uint64) bool { return addr < s.Base && s.Base-addr <= 128 }

// elsewhere returns why there is no word at addr, which is not on the stack that was copied: it may be
// on another one, if it can be on a stack at all.
func elsewhere(addr uint64) Reason {
	const (
		lowest  = 1 << 16 // mmap_min_addr: nothing is mapped below
		userEnd = 1 << 47 // TASK_SIZE_MAX
	)
	if addr < lowest || addr >= userEnd || addr%4 != 0 {
		return BadCFI
	}
	return NotCopied
}
