package dwarfcfi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"unspool/dwarfcfi/elf"
)

// The budget of one evaluation. Expressions of PLTs and of realigned stacks have about ten bytes,
// the longest in OpenSSL's assembly about twenty, and none has a loop.
const (
	// maxExpr is the length in bytes of the longest expression that is evaluated.
	maxExpr = 4096
	// maxTicks is how many operations an expression with a loop may execute; without a loop, each
	// operation is executed at most once. Delve stops after ticksPerByte operations for each byte
	// of a program. So a program that branches backwards and is so long that delve would allow it
	// more than maxTicks is not started.
	maxTicks     = 10_000
	ticksPerByte = 10
	// maxRead is how many bytes of memory one evaluation may read: as many as an expression of
	// maxExpr bytes without a loop could read.
	maxRead = 8 * maxExpr
)

// Values are what an expression may ask for.
type Values struct {
	Regs  []uint64 // registers by DWARF number
	Known uint64   // bit n set: the value of Regs[n] is known
	// Read reads size bytes (1, 2, 4 or 8) at addr, zero-extended; false when it cannot.
	// A nil Read can read nothing.
	Read    func(addr uint64, size int) (uint64, bool)
	PtrSize int    // 4 or 8
	Bias    uint64 // load bias of the image: added to the operand of DW_OP_addr
}

// Eval evaluates a DWARF expression of a row and returns the value on top of its stack.
// The initial values are pushed first: none for the expression of a CFA, the CFA for that
// of a register (DWARF 5, 6.4.2.3). The error wraps [ErrUnreadable], [ErrUnknownRegister]
// or [ErrBadExpr]; it is ErrBadExpr also if a loop does not end within 10 operations for each
// byte of the expression, or within 10,000 in all. Eval allocates; rules that need it are rare.
func Eval(expr []byte, v *Values, initial ...uint64) (uint64, error) {
	prog, err := translate(expr, v.PtrSize, initial)
	if err != nil {
		return 0, err
	}
	mask := ^uint64(0)
	if v.PtrSize == 4 {
		mask = 1<<32 - 1
	}
	regs := make([]*op.DwarfRegister, min(len(v.Regs), 64))
	for i := range regs {
		if v.Known>>i&1 != 0 {
			regs[i] = op.DwarfRegisterFromUint64(v.Regs[i] & mask)
		}
	}
	dregs := op.NewDwarfRegisters(v.Bias, regs, binary.LittleEndian, 0, 0, 0, 0)
	unknown := false
	dregs.SetLoadMoreCallback(func() { unknown = true })
	memory := memory{values: v, mask: mask, byteReads: prog.byteReads, left: maxRead}
	_, pieces, err := op.ExecuteStackProgram(*dregs, prog.code, v.PtrSize, memory.read)
	switch {
	case err == nil && len(pieces) == 1:
		return pieces[0].Val & mask, nil
	case err == nil:
		// Delve returns the top of the stack also when it reaches its limit. But only the
		// DW_OP_stack_value at the end of the program makes a piece, so a result without one
		// means that the program did not end.
		return 0, fmt.Errorf("not finished after %d operations: %w", ticksPerByte*len(prog.code), ErrBadExpr)
	case errors.Is(err, ErrUnreadable):
		return 0, err
	case unknown:
		return 0, fmt.Errorf("%w: %w", err, ErrUnknownRegister)
	}
	return 0, fmt.Errorf("%w: %w", err, ErrBadExpr)
}

// memory is what an evaluation may read.
type memory struct {
	values    *Values
	mask      uint64 // of an address
	byteReads bool   // the program's reads of 2 bytes are translated reads of 1 byte
	left      int    // bytes that may still be read
}

func (m *memory) read(buf []byte, addr uint64) (int, error) {
	if m.left -= len(buf); m.left < 0 {
		return 0, fmt.Errorf("more than %d bytes of memory read", maxRead)
	}
	addr &= m.mask
	if m.values.Read != nil {
		size := len(buf)
		if size == 2 && m.byteReads {
			size = 1
		}
		if value, ok := m.values.Read(addr, size); ok {
			for i := range buf {
				buf[i] = byte(value >> (8 * i))
			}
			return len(buf), nil
		}
	}
	return 0, fmt.Errorf("%d bytes at %#x: %w", len(buf), addr, ErrUnreadable)
}

// stackProgram is an expression in the form in which delve's evaluator gets it: checked, and
// translated where delve would panic or give the same answer for different outcomes.
type stackProgram struct {
	code      []byte
	byteReads bool // each DW_OP_deref_size 2 was a DW_OP_deref_size 1
}

// invalid is the code of no operation: delve's evaluator returns an error where it executes it.
const invalid = 0

// translate checks an expression before it is evaluated: every operation is one that CFI may
// use, its operands are there, and every branch leads to an operation or the end. The program
// pushes the initial values, evaluates the expression, and ends with DW_OP_stack_value.
//
// DWARF 5, 6.4.2, rules out operations that need a compilation unit, a type or an object. The
// operations of 2.6 (DW_OP_reg, DW_OP_piece, DW_OP_implicit_value, DW_OP_stack_value) are refused
// too, since a rule is a value and not a location description; so are other address spaces.
func translate(expr []byte, ptrSize int, initial []uint64) (p stackProgram, err error) {
	if ptrSize != 4 && ptrSize != 8 {
		return p, fmt.Errorf("pointers of %d bytes: %w", ptrSize, ErrBadExpr)
	}
	if len(expr) > maxExpr {
		return p, fmt.Errorf("%d bytes long: %w", len(expr), ErrBadExpr)
	}
	const added = 1 + 8 // DW_OP_stack_value, and the bytes by which one DW_OP_plus_uconst grows
	p.code = make([]byte, 0, 9*len(initial)+len(expr)+added)
	for _, value := range initial {
		p.push(value)
	}
	starts := make([]int, len(expr)+1) // by byte of expr: where its operation starts in p.code, plus 1
	var branches []branch
	wordReads := false
	c := elf.Cursor{Data: expr}
	for c.Pos < len(expr) {
		at := c.Pos
		starts[at] = len(p.code) + 1
		code := op.Opcode(c.U8())
		operands := operandsOf(code)
		if operands == forbidden {
			return p, fmt.Errorf("operation %#x at byte %d: %w", byte(code), at, ErrBadExpr)
		}
		operand := operands.read(&c, ptrSize)
		if c.Bad {
			return p, fmt.Errorf("operand at byte %d: %w", at, ErrBadExpr)
		}
		switch code {
		case op.DW_OP_plus_uconst:
			// Delve's DW_OP_plus_uconst panics if the stack is empty.
			p.push(operand)
			p.code = append(p.code, byte(op.DW_OP_plus))
			continue
		case op.DW_OP_div, op.DW_OP_mod:
			// Delve's DW_OP_div and DW_OP_mod panic if the divisor is zero.
			p.code = append(p.code, byte(op.DW_OP_dup), byte(op.DW_OP_bra), 1, 0, invalid)
		case op.DW_OP_deref_size:
			if operand == 1 {
				// Delve reads 2, 4 and 8 bytes but not 1. An expression with reads of both 1 and
				// 2 bytes is refused, so a read of 2 can be written here, and memory.read
				// takes one byte for it.
				p.byteReads = true
				p.code = append(p.code, byte(code), 2)
				continue
			}
			wordReads = wordReads || operand == 2
		}
		p.code = append(p.code, expr[at:c.Pos]...)
		if operands == target {
			branches = append(branches, branch{at: at, to: c.Pos + int(int16(operand)), end: len(p.code)})
		}
	}
	starts[len(expr)] = len(p.code) + 1
	p.code = append(p.code, byte(op.DW_OP_stack_value))
	if wordReads && p.byteReads {
		return p, fmt.Errorf("reads of 1 and of 2 bytes in one expression: %w", ErrBadExpr)
	}
	return p, p.link(branches, starts)
}

func (p *stackProgram) push(value uint64) {
	p.code = append(p.code, byte(op.DW_OP_const8u))
	p.code = binary.LittleEndian.AppendUint64(p.code, value)
}

// branch is DW_OP_bra or DW_OP_skip.
type branch struct {
	at, to int // in bytes of the expression
	end    int // where its operand ends in the program
}

// link sets the operands of the branches. They fit into 16 bits: translate makes at most 6 bytes of
// one, and maxExpr is 4096.
func (p *stackProgram) link(branches []branch, starts []int) error {
	for _, b := range branches {
		if b.to < 0 || b.to >= len(starts) || starts[b.to] == 0 {
			return fmt.Errorf("branch at byte %d leads to byte %d: %w", b.at, b.to, ErrBadExpr)
		}
		if b.to <= b.at && ticksPerByte*len(p.code) > maxTicks {
			return fmt.Errorf("a loop in an expression of %d bytes: %w", len(starts)-1, ErrBadExpr)
		}
		distance := starts[b.to] - 1 - b.end
		binary.LittleEndian.PutUint16(p.code[b.end-2:], uint16(int16(distance)))
	}
	return nil
}

// operands is what follows an operation code: a number of bytes, or one of the kinds below.
type operands uint8

const (
	forbidden operands = 0x80 + iota
	uleb
	sleb
	ulebSleb
	address
	derefSize
	target
)

// read reads the operands. It returns the number that follows DW_OP_plus_uconst, DW_OP_deref_size or
// a branch, as translate needs it.
func (o operands) read(c *elf.Cursor, ptrSize int) (value uint64) {
	switch o {
	case uleb:
		return c.ULEB()
	case sleb:
		c.SLEB()
	case ulebSleb:
		c.ULEB()
		c.SLEB()
	case address:
		c.Take(ptrSize)
	case derefSize:
		size := c.U8()
		if size != 1 && size != 2 && size != 4 && size != 8 {
			c.Bad = true
		}
		return uint64(size)
	case target:
		return uint64(c.U16())
	default:
		c.Take(int(o))
	}
	return 0
}

func operandsOf(code op.Opcode) operands {
	switch {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		return 0
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		return sleb
	}
	switch code {
	case op.DW_OP_dup, op.DW_OP_drop, op.DW_OP_over, op.DW_OP_swap, op.DW_OP_rot,
		op.DW_OP_deref, op.DW_OP_abs, op.DW_OP_and, op.DW_OP_div, op.DW_OP_minus,
		op.DW_OP_mod, op.DW_OP_mul, op.DW_OP_neg, op.DW_OP_not, op.DW_OP_or, op.DW_OP_plus,
		op.DW_OP_shl, op.DW_OP_shr, op.DW_OP_shra, op.DW_OP_xor, op.DW_OP_eq, op.DW_OP_ge,
		op.DW_OP_gt, op.DW_OP_le, op.DW_OP_lt, op.DW_OP_ne, op.DW_OP_nop:
		return 0
	case op.DW_OP_const1u, op.DW_OP_const1s, op.DW_OP_pick:
		return 1
	case op.DW_OP_const2u, op.DW_OP_const2s:
		return 2
	case op.DW_OP_const4u, op.DW_OP_const4s:
		return 4
	case op.DW_OP_const8u, op.DW_OP_const8s:
		return 8
	case op.DW_OP_constu, op.DW_OP_plus_uconst:
		return uleb
	case op.DW_OP_consts:
		return sleb
	case op.DW_OP_bregx:
		return ulebSleb
	case op.DW_OP_addr:
		return address
	case op.DW_OP_deref_size:
		return derefSize
	case op.DW_OP_bra, op.DW_OP_skip:
		return target
	}
	return forbidden
}
