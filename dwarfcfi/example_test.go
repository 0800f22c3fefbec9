package dwarfcfi_test

import (
	"fmt"

	"unspool/dwarfcfi"
)

// A function that pushes BP: its CFA is SP+8 at first, and SP+16 from the second byte on.
func ExampleTable_Row() {
	var s dwarfcfi.Sections
	s.PtrSize = 8
	s.EhFrame.Addr = 0x500000
	s.EhFrame.Data = []byte{
		16, 0, 0, 0, // CIE: length
		0, 0, 0, 0, // a CIE
		1, 0, // version, no augmentation
		1, 0x78, 16, // code alignment 1, data alignment -8, return address in column 16
		0x0c, 7, 8, // DW_CFA_def_cfa: SP+8
		0x90, 1, // DW_CFA_offset: return address at CFA-8
		0, 0, // DW_CFA_nop
		28, 0, 0, 0, // FDE: length
		24, 0, 0, 0, // its CIE is 24 bytes before here
		0, 0x10, 0x40, 0, 0, 0, 0, 0, // begins at 0x401000
		0x20, 0, 0, 0, 0, 0, 0, 0, // 0x20 bytes
		0x41,     // DW_CFA_advance_loc: 1
		0x0e, 16, // DW_CFA_def_cfa_offset: 16
		0x86, 2, // DW_CFA_offset: BP at CFA-16
		0, 0, 0, // DW_CFA_nop
		0, 0, 0, 0, // the end
	}
	table, err := dwarfcfi.New(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	var row dwarfcfi.Row
	for _, pc := range []uint64{0x401000, 0x401010, 0x402000} {
		if err := table.Row(pc, &row); err != nil {
			fmt.Printf("%#x: %v\n", pc, err)
			continue
		}
		fmt.Printf("%#x to %#x: CFA is r%d%+d\n", row.Start, row.End, row.CFA.Reg, row.CFA.Offset)
	}
	// Output:
	// 0x401000 to 0x401001: CFA is r7+8
	// 0x401001 to 0x401020: CFA is r7+16
	// 0x402000: no FDE covers the address
}

// The CFA of a PLT entry: SP+8, and 8 more from the eleventh byte of the entry on.
func ExampleEval() {
	expr := []byte{
		0x77, 8, // DW_OP_breg7 8
		0x80, 0, // DW_OP_breg16 0
		0x3f, 0x1a, // DW_OP_lit15, DW_OP_and
		0x3b, 0x2a, // DW_OP_lit11, DW_OP_ge
		0x33, 0x24, // DW_OP_lit3, DW_OP_shl
		0x22, // DW_OP_plus
	}
	values := dwarfcfi.Values{Regs: make([]uint64, 17), Known: 1<<7 | 1<<16, PtrSize: 8}
	values.Regs[7] = 0x7ffc_0000_1000
	for _, pc := range []uint64{0x401020, 0x40102b} {
		values.Regs[16] = pc
		cfa, err := dwarfcfi.Eval(expr, &values)
		fmt.Printf("%#x %v\n", cfa, err)
	}
	// Output:
	// 0x7ffc00001008 <nil>
	// 0x7ffc00001010 <nil>
}
