package dwarfcfi

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"unspool/testdata/costs"
)

// code writes an expression: opcodes and the bytes of their operands.
func code(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		if o, ok := p.(op.Opcode); ok {
			p = byte(o)
		}
		b = append(b, join(p)...)
	}
	return b
}

// machine has register n = 0x1000*n, except 12, which is unknown, and memory of eight words
// from 0x7000 on: byte i is 0x80+i.
var machine = Values{
	Regs: []uint64{0, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0x7000,
		0x8000, 0x9000, 0xa000, 0xb000, 0xc000, 0xd000, 0xe000, 0xf000, 0x401016},
	Known:   1<<17 - 1 - 1<<12,
	PtrSize: 8,
	Read: func(addr uint64, size int) (v uint64, ok bool) {
		for i := range uint64(size) {
			at := addr - 0x7000 + i
			if at >= 64 {
				return 0, false
			}
			v |= (0x80 + at) << (8 * i)
		}
		return v, true
	},
}

func TestEval(t *testing.T) {
	const minus1 = ^uint64(0)
	for _, c := range []struct {
		name    string
		expr    []byte
		initial []uint64
		want    uint64
	}{
		{"breg7", code(op.DW_OP_breg0+7, sleb128(-8)), nil, 0x6ff8},
		{"bregx", code(op.DW_OP_bregx, uleb128(16), sleb128(2)), nil, 0x401018},
		{"deref", code(op.DW_OP_breg0+7, 8, op.DW_OP_deref), nil, 0x8f8e8d8c8b8a8988},
		{"deref_size 1", code(op.DW_OP_breg0+7, 8, op.DW_OP_deref_size, 1), nil, 0x88},
		{"deref_size 2", code(op.DW_OP_breg0+7, 8, op.DW_OP_deref_size, 2), nil, 0x8988},
		{"deref_size 4", code(op.DW_OP_breg0+7, 8, op.DW_OP_deref_size, 4), nil, 0x8b8a8988},
		{"deref_size 8", code(op.DW_OP_breg0+7, 8, op.DW_OP_deref_size, 8), nil, 0x8f8e8d8c8b8a8988},
		{"the last byte of memory", code(op.DW_OP_breg0+7, 63, op.DW_OP_deref_size, 1), nil, 0xbf},
		{"plus_uconst", code(op.DW_OP_breg0+7, 0, op.DW_OP_plus_uconst, uleb128(1000)), nil, 0x73e8},
		{"the CFA is on the stack", code(op.DW_OP_plus_uconst, 16), []uint64{0x7fff_0000_0000}, 0x7fff_0000_0010},
		{"the CFA above 2^63", code(op.DW_OP_nop), []uint64{minus1}, minus1},
		{"two initial values", code(op.DW_OP_minus), []uint64{9, 4}, 5},
		{"the PLT's CFA in its first half", code(op.DW_OP_breg0+7, 8, op.DW_OP_breg0+16, 0, op.DW_OP_lit0+15,
			op.DW_OP_and,
			op.DW_OP_lit0+11, op.DW_OP_ge, op.DW_OP_lit0+3, op.DW_OP_shl, op.DW_OP_plus), nil, 0x7008},
		{"the PLT's CFA in its second half", code(op.DW_OP_breg0+7, 8, op.DW_OP_breg0+16, 5, op.DW_OP_lit0+15,
			op.DW_OP_and,
			op.DW_OP_lit0+11, op.DW_OP_ge, op.DW_OP_lit0+3, op.DW_OP_shl, op.DW_OP_plus), nil, 0x7010},
		{"const", code(op.DW_OP_const1u, 0xff, op.DW_OP_const1s, 0xff, op.DW_OP_plus, op.DW_OP_const2u, 0, 1,
			op.DW_OP_plus,
			op.DW_OP_const2s, 0xff, 0xff, op.DW_OP_plus, op.DW_OP_const4s, 0, 0, 0, 0, op.DW_OP_plus), nil,
			0xff - 1 + 0x100 - 1},
		{"constu, consts", code(op.DW_OP_constu, uleb128(1<<40), op.DW_OP_consts, sleb128(-1), op.DW_OP_plus), nil,
			1<<40 - 1},
		{"const8s", code(op.DW_OP_const8s, le.AppendUint64(nil, minus1)), nil, minus1},
		{"addr", code(op.DW_OP_addr, le.AppendUint64(nil, 0x1234)), nil, 0x1234},
		{"skip", code(op.DW_OP_lit1, op.DW_OP_skip, 1, 0, op.DW_OP_lit0+9), nil, 1},
		{"bra taken", code(op.DW_OP_lit0+7, op.DW_OP_lit1, op.DW_OP_bra, 1, 0, op.DW_OP_lit0+9), nil, 7},
		{"bra not taken", code(op.DW_OP_lit0+7, op.DW_OP_lit0, op.DW_OP_bra, 1, 0, op.DW_OP_lit0+9), nil, 9},
		{"bra backwards, in a loop", code(op.DW_OP_lit0+3, op.DW_OP_lit1, op.DW_OP_minus, op.DW_OP_dup,
			op.DW_OP_bra, 0xfa, 0xff), nil, 0},
		{"skip over what is translated", code(op.DW_OP_lit1, op.DW_OP_skip, 3, 0,
			op.DW_OP_plus_uconst, 4, op.DW_OP_div, op.DW_OP_lit0+9), nil, 9},
		{"bra backwards over what is translated", code(op.DW_OP_lit0+5, op.DW_OP_lit0+8,
			op.DW_OP_lit0+2, op.DW_OP_div, op.DW_OP_plus_uconst, 0, op.DW_OP_dup, op.DW_OP_bra, 0xf8, 0xff,
			op.DW_OP_plus), nil, 5},
		{"bra after an initial value", code(op.DW_OP_lit1, op.DW_OP_bra, 1, 0, op.DW_OP_drop, op.DW_OP_lit1,
			op.DW_OP_plus), []uint64{6}, 7},
		{"stack operations", code(op.DW_OP_lit1, op.DW_OP_lit0+2, op.DW_OP_over, op.DW_OP_swap, op.DW_OP_rot,
			op.DW_OP_pick, 2, op.DW_OP_drop, op.DW_OP_drop), nil, 1},
		{"div is signed", code(op.DW_OP_consts, sleb128(-7), op.DW_OP_lit0+2, op.DW_OP_div), nil, minus1 - 2},
		{"mod", code(op.DW_OP_lit0+17, op.DW_OP_lit0+5, op.DW_OP_mod), nil, 2},
		{"div leaves what is below", code(op.DW_OP_lit0+5, op.DW_OP_lit0+6, op.DW_OP_lit0+2,
			op.DW_OP_div, op.DW_OP_minus), nil, 2},
		{"the smallest number by -1", code(op.DW_OP_lit1, op.DW_OP_const1u, 63, op.DW_OP_shl,
			op.DW_OP_consts, sleb128(-1), op.DW_OP_div), nil, 1 << 63},
		{"shra", code(op.DW_OP_lit0+8, op.DW_OP_neg, op.DW_OP_lit1, op.DW_OP_shra), nil, minus1 - 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Eval(c.expr, &machine, c.initial...)
			if err != nil || got != c.want {
				t.Errorf("got %#x, %v; want %#x", got, err, c.want)
			}
		})
	}
}

func TestEvalOfA32BitImage(t *testing.T) {
	v := machine
	v.PtrSize = 4
	got, err := Eval(code(op.DW_OP_breg0+7, 4, op.DW_OP_deref, op.DW_OP_lit0, op.DW_OP_not, op.DW_OP_plus), &v)
	if err != nil || got != 0x87868584-1 {
		t.Errorf("got %#x, %v", got, err)
	}
	got, err = Eval(code(op.DW_OP_addr, 4, 3, 2, 1, op.DW_OP_lit0+5, op.DW_OP_neg, op.DW_OP_plus), &v)
	if err != nil || got != 0x01020304-5 {
		t.Errorf("got %#x, %v", got, err)
	}
	v.Bias = 0x5000_0000
	got, err = Eval(code(op.DW_OP_addr, 4, 3, 2, 1), &v)
	if err != nil || got != 0x51020304 {
		t.Errorf("got %#x, %v", got, err)
	}
}

func TestEvalRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		expr []byte
		want error
	}{
		{"nothing", nil, ErrBadExpr},
		{"memory that is not there", code(op.DW_OP_breg0+7, uleb128(64), op.DW_OP_deref), ErrUnreadable},
		{"memory that ends in the word", code(op.DW_OP_breg0+7, 60, op.DW_OP_deref), ErrUnreadable},
		{"a register that is not known", code(op.DW_OP_breg0+12, 0), ErrUnknownRegister},
		{"a register that does not exist", code(op.DW_OP_bregx, uleb128(1<<62), 0), ErrUnknownRegister},
		{"division by zero", code(op.DW_OP_lit1, op.DW_OP_lit0, op.DW_OP_div), ErrBadExpr},
		{"remainder of zero", code(op.DW_OP_lit1, op.DW_OP_lit0, op.DW_OP_mod), ErrBadExpr},
		{"division by zero that is computed", code(op.DW_OP_breg0+7, 0, op.DW_OP_breg0+1, 0,
			op.DW_OP_dup, op.DW_OP_minus, op.DW_OP_div), ErrBadExpr},
		{"division on an empty stack", code(op.DW_OP_div), ErrBadExpr},
		{"division of nothing", code(op.DW_OP_lit1, op.DW_OP_mod), ErrBadExpr},
		{"plus_uconst on an empty stack", code(op.DW_OP_plus_uconst, 1), ErrBadExpr},
		{"plus on an empty stack", code(op.DW_OP_plus), ErrBadExpr},
		{"a number without end", code(op.DW_OP_constu, 0x80), ErrBadExpr},
		{"an operand cut short", code(op.DW_OP_const8u, 1, 2, 3), ErrBadExpr},
		{"deref_size 3", code(op.DW_OP_breg0+7, 0, op.DW_OP_deref_size, 3), ErrBadExpr},
		{"implicit_value of 2^40 bytes", code(op.DW_OP_implicit_value, uleb128(1<<40)), ErrBadExpr},
		{"implicit_value in an operand's place", code(op.DW_OP_skip, 1, 0, op.DW_OP_const1u,
			op.DW_OP_implicit_value), ErrBadExpr},
		{"stack_value", code(op.DW_OP_lit1, op.DW_OP_stack_value), ErrBadExpr},
		{"piece", code(op.DW_OP_lit1, op.DW_OP_piece, 8), ErrBadExpr},
		{"a register's location", code(op.DW_OP_reg0 + 3), ErrBadExpr},
		{"call_frame_cfa", code(op.DW_OP_call_frame_cfa), ErrBadExpr},
		{"call2", code(op.DW_OP_call2, 0, 0), ErrBadExpr},
		{"push_object_address", code(op.DW_OP_push_object_address), ErrBadExpr},
		{"fbreg", code(op.DW_OP_fbreg, 0), ErrBadExpr},
		{"another address space", code(op.DW_OP_lit0, op.DW_OP_lit0, op.DW_OP_xderef), ErrBadExpr},
		{"an unknown operation", code(0xff), ErrBadExpr},
		{"a branch before the start", code(op.DW_OP_skip, 0x00, 0x80), ErrBadExpr},
		{"a branch behind the end", code(op.DW_OP_lit1, op.DW_OP_skip, 1, 0), ErrBadExpr},
		{"a branch into an operand", code(op.DW_OP_const2u, 0, 0, op.DW_OP_skip, 0xfb, 0xff), ErrBadExpr},
		{"more than 4 KiB", bytes.Repeat([]byte{byte(op.DW_OP_lit1)}, maxExpr+1), ErrBadExpr},
		{"an endless loop on an empty stack", code(op.DW_OP_skip, 0xfd, 0xff), ErrBadExpr},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Eval(c.expr, &machine)
			if !errors.Is(err, c.want) {
				t.Errorf("got %#x, %v; want %v", got, err, c.want)
			}
		})
	}
	if _, err := Eval(code(op.DW_OP_lit1), &Values{}); !errors.Is(err, ErrBadExpr) {
		t.Errorf("without a pointer size: %v", err)
	}
	if _, err := Eval(code(op.DW_OP_lit1, op.DW_OP_deref), &Values{PtrSize: 8}); !errors.Is(err, ErrUnreadable) {
		t.Errorf("without memory: %v", err)
	}
}

// A loop that does not end costs the budget and yields an error, not what happens to be on the stack.
func TestEvalEndsLoops(t *testing.T) {
	back := func(body ...any) []byte {
		b := code(body...)
		return append(b, code(op.DW_OP_skip, le.AppendUint16(nil, uint16(-len(b)-3)))...)
	}
	for _, c := range []struct {
		name string
		expr []byte
	}{
		{"skip to itself", back()},
		{"skip to itself with a value on the stack", code(op.DW_OP_lit1, back())},
		{"skip over nops", back(op.DW_OP_nop, op.DW_OP_nop)},
		{"skip that pushes", back(op.DW_OP_lit1)},
		{"skip that pushes and drops", code(op.DW_OP_lit1, back(op.DW_OP_lit1, op.DW_OP_drop))},
		{"skip that adds", code(op.DW_OP_lit1, back(op.DW_OP_plus_uconst, 1))},
		{"skip that divides", code(op.DW_OP_lit1, back(op.DW_OP_lit1, op.DW_OP_div))},
		{"skip that reads", code(op.DW_OP_lit1, back(op.DW_OP_breg0+7, 0, op.DW_OP_deref, op.DW_OP_drop))},
		{"skip that reads bytes", code(op.DW_OP_lit1, back(op.DW_OP_breg0+7, 0,
			op.DW_OP_deref_size, 1, op.DW_OP_drop))},
		{"skip to and fro", code(op.DW_OP_lit1, op.DW_OP_skip, 0, 0, op.DW_OP_skip, 0xfa, 0xff)},
		{"bra", code(op.DW_OP_lit1, op.DW_OP_dup, op.DW_OP_bra, 0xfc, 0xff)},
		{"bra that counts down from 2^64", code(op.DW_OP_lit0, op.DW_OP_lit1, op.DW_OP_minus,
			op.DW_OP_dup, op.DW_OP_bra, 0xfa, 0xff)},
		{"as long as delve's limit allows", back(bytes.Repeat([]byte{byte(op.DW_OP_lit1)}, 950))},
		{"as long as a read in each turn allows", back(bytes.Repeat(code(op.DW_OP_breg0+7, 0,
			op.DW_OP_deref, op.DW_OP_drop), 190))},
		{"longer than the budget", back(bytes.Repeat([]byte{byte(op.DW_OP_lit1)}, 4000))},
		{"longer than the budget once translated", back(bytes.Repeat(code(op.DW_OP_lit1,
			op.DW_OP_lit1, op.DW_OP_div), 200))},
	} {
		t.Run(c.name, func(t *testing.T) {
			machine, cost := counted(machine)
			end := costs.For(len(c.expr)).Check(t)
			got, err := Eval(c.expr, machine, 0x7000)
			end()
			if !errors.Is(err, ErrBadExpr) {
				t.Errorf("got %#x, %v; want %v", got, err, ErrBadExpr)
			}
			cost.check(t)
		})
	}
}

// The budget is enough for whatever does not loop.
func TestEvalOfTheLongestExpression(t *testing.T) {
	for name, expr := range map[string][]byte{
		"reads":     append(bytes.Repeat(code(op.DW_OP_deref), maxExpr-2), code(op.DW_OP_breg0+7, 0)...),
		"divisions": bytes.Repeat(code(op.DW_OP_lit1, op.DW_OP_div), maxExpr/2),
		"branches":  bytes.Repeat(code(op.DW_OP_dup, op.DW_OP_bra, 0, 0), maxExpr/4),
		"over divisions": code(op.DW_OP_skip, le.AppendUint16(nil, maxExpr-3),
			bytes.Repeat(code(op.DW_OP_div), maxExpr-3)),
	} {
		v, cost := counted(machine)
		v.Read = func(uint64, int) (uint64, bool) { cost.bytes += 8; return 0x7000, true }
		if got, err := Eval(expr, v, 0x7000); err != nil || got != 0x7000 {
			t.Errorf("%s: got %#x, %v; want 0x7000", name, got, err)
		}
		cost.check(t)
	}
}

// cost is what evaluations asked of memory.
type cost struct{ reads, bytes int }

// counted is a machine whose reads are counted.
func counted(v Values) (*Values, *cost) {
	var c cost
	read := v.Read
	v.Read = func(addr uint64, size int) (uint64, bool) {
		c.reads++
		c.bytes += size
		return read(addr, size)
	}
	return &v, &c
}

// check fails where one evaluation went beyond its budget.
func (c *cost) check(t *testing.T) {
	t.Helper()
	if c.reads > maxTicks || c.bytes > maxRead {
		t.Errorf("%d reads of %d bytes", c.reads, c.bytes)
	}
}
