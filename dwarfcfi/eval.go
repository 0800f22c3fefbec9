package dwarfcfi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"unspool/dwarfcfi/elf"
)

// maxExpr is the length in bytes up to which an expression is evaluated. Those of PLTs and
// realigned stacks have about ten; the longest in OpenSSL's assembly some twenty.
const maxExpr = 4096

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
// or [ErrBadExpr]. Eval allocates; rules that need it are rare.
func Eval(expr []byte, v *Values, initial ...uint64) (result uint64, err error) {
	byteReads, err := checkExpr(expr, v.PtrSize)
	if err != nil {
		return 0, err
	}
	prog := make([]byte, 0, 9*len(initial)+len(expr))
	for _, value := range initial {
		prog = append(prog, byte(op.DW_OP_const8u))
		prog = binary.LittleEndian.AppendUint64(prog, value)
	}
	start := len(prog)
	prog = append(prog, expr...)
	for _, at := range byteReads {
		// op reads 2, 4 and 8 bytes but not 1. No read of 2 stands beside one of 1, so
		// that size can be written for it, and takes a byte.
		prog[start+at] = 2
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
	read := func(buf []byte, addr uint64) (int, error) {
		addr &= mask
		if v.Read != nil {
			size := len(buf)
			if size == 2 && len(byteReads) > 0 {
				size = 1
			}
			if value, ok := v.Read(addr, size); ok {
				for i := range buf {
					buf[i] = byte(value >> (8 * i))
				}
				return len(buf), nil
			}
		}
		return 0, fmt.Errorf("%d bytes at %#x: %w", len(buf), addr, ErrUnreadable)
	}

	// The evaluator panics where a well-formed program fails at run time: division by
	// zero, DW_OP_plus_uconst on an empty stack.
	defer func() {
		if r := recover(); r != nil {
			result, err = 0, fmt.Errorf("%v: %w", r, ErrBadExpr)
		}
	}()
	dregs := op.NewDwarfRegisters(v.Bias, regs, binary.LittleEndian, 0, 0, 0, 0)
	unknown := false
	dregs.SetLoadMoreCallback(func() { unknown = true })
	top, _, err := op.ExecuteStackProgram(*dregs, prog, v.PtrSize, read)
	switch {
	case err == nil:
		return uint64(top) & mask, nil
	case errors.Is(err, ErrUnreadable):
		return 0, err
	case unknown:
		return 0, fmt.Errorf("%w: %w", err, ErrUnknownRegister)
	}
	return 0, fmt.Errorf("%w: %w", err, ErrBadExpr)
}

// checkExpr verifies an expression before it is evaluated: every operation is one that CFI may
// use, its operands are there, and every branch leads to an operation or the end.
//
// DWARF 5, 6.4.2, rules out what needs a compilation unit, a type or an object. Left out
// as well is all of 2.6, since a rule is a value and not a location description:
// DW_OP_reg, DW_OP_piece, DW_OP_implicit_value, DW_OP_stack_value; and other address
// spaces.
//
// It returns where the sizes of DW_OP_deref_size 1 stand.
func checkExpr(expr []byte, ptrSize int) (byteReads []int, err error) {
	if ptrSize != 4 && ptrSize != 8 {
		return nil, fmt.Errorf("pointers of %d bytes: %w", ptrSize, ErrBadExpr)
	}
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("%d bytes long: %w", len(expr), ErrBadExpr)
	}
	var starts [maxExpr/64 + 1]uint64 // bit n: an operation starts at byte n
	starts[len(expr)/64] |= 1 << (len(expr) % 64)
	c := elf.Cursor{Data: expr}
	branches, wordReads := false, false
	for c.Pos < len(expr) {
		at := c.Pos
		starts[at/64] |= 1 << (at % 64)
		code := op.Opcode(c.U8())
		switch operands := operandsOf(code); operands {
		case forbidden:
			return nil, fmt.Errorf("operation %#x at byte %d: %w", byte(code), at, ErrBadExpr)
		case uleb:
			c.ULEB()
		case sleb:
			c.SLEB()
		case ulebSleb:
			c.ULEB()
			c.SLEB()
		case address:
			c.Take(ptrSize)
		case derefSize:
			switch size := c.U8(); size {
			case 1:
				byteReads = append(byteReads, at+1)
			case 2:
				wordReads = true
			case 4, 8:
			default:
				c.Bad = true
			}
		case target:
			branches = true
			c.Take(2)
		default:
			c.Take(int(operands))
		}
		if c.Bad {
			return nil, fmt.Errorf("operand at byte %d: %w", at, ErrBadExpr)
		}
	}
	if wordReads && byteReads != nil {
		return nil, fmt.Errorf("reads of 1 and of 2 bytes in one expression: %w", ErrBadExpr)
	}
	for at := 0; branches && at < len(expr); at++ {
		if starts[at/64]>>(at%64)&1 == 0 || operandsOf(op.Opcode(expr[at])) != target {
			continue
		}
		to := at + 3 + int(int16(binary.LittleEndian.Uint16(expr[at+1:])))
		if to < 0 || to > len(expr) || starts[to/64]>>(to%64)&1 == 0 {
			return nil, fmt.Errorf("branch at byte %d leads to byte %d: %w", at, to, ErrBadExpr)
		}
	}
	return byteReads, nil
}

// operands says what follows an operation: the number of bytes, or one of the kinds below.
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
