package x86

// IsOneByte reports whether the opcode is of the one-byte map.
func (in *Insn) IsOneByte() bool { return in.Encoding == Legacy && in.Map == 0 }

// Moves reports whether the instruction copies a register of 64 bits to another one, and which these are.
func (in *Insn) Moves() (dst, src uint8, ok bool) {
	if !in.IsOneByte() || in.Mod != 3 || in.REX&RexW == 0 {
		return 0, 0, false
	}
	switch in.Op {
	case 0x89:
		return in.RM, in.Reg, true
	case 0x8b:
		return in.Reg, in.RM, true
	}
	return 0, 0, false
}

// Pops reports whether the instruction is a pop of a register, and of which one.
func (in *Insn) Pops() (reg uint8, ok bool) {
	if !in.IsOneByte() || in.Op&^7 != 0x58 {
		return 0, false
	}
	return in.Low(), true
}

// IsLoad reports whether the instruction copies from memory at Base to the register Reg.
func (in *Insn) IsLoad() bool { return in.IsOneByte() && in.Op == 0x8b && in.Mod != 3 }

// IsLEA reports whether Reg gets an address.
func (in *Insn) IsLEA() bool { return in.IsOneByte() && in.Op == 0x8d }

// IsCompare reports whether the instruction compares.
func (in *Insn) IsCompare() bool {
	return in.IsOneByte() && (in.Op >= 0x38 && in.Op < 0x3e || in.Op >= 0x80 && in.Op <= 0x83 && in.Reg&7 == 7)
}

// IsAnd reports whether the instruction clears bits of a register.
func (in *Insn) IsAnd() bool {
	return in.IsOneByte() && (in.Op >= 0x20 && in.Op < 0x26 || in.Op >= 0x80 && in.Op <= 0x83 && in.Reg&7 == 4)
}

// AddsToSP reports whether the instruction adds a constant to SP, or subtracts one.
func (in *Insn) AddsToSP() bool {
	switch {
	case !in.IsOneByte():
		return false
	case in.Op == 0x81 || in.Op == 0x83:
		return in.Mod == 3 && in.RM == SP && (in.Reg&7 == 0 || in.Reg&7 == 5)
	}
	return in.IsLEA() && in.Reg == SP && in.Base == SP && !in.HasIndex
}

// IsCall reports whether the instruction is a near call.
func (in *Insn) IsCall() bool {
	return in.IsOneByte() && (in.Op == 0xe8 || in.Op == 0xff && in.Reg&7 == 2)
}

// IsSyscall reports whether the instruction is a system call.
func (in *Insn) IsSyscall() bool { return in.Encoding == Legacy && in.Map == 1 && in.Op == 0x05 }
