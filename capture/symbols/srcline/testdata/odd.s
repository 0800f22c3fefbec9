# Debugging information as no compiler writes it: function a is its own abstract origin, b and c are each other's, d holds 600 calls
# inlined in one another. What is within the type behind them cannot be read, which matters only where addresses are left.
	.text
	.globl _start
_start:
a:	.fill 4, 1, 0x90
b:	.fill 4, 1, 0x90
c:	.fill 4, 1, 0x90
d:	.fill 4, 1, 0x90
end:

	.section .debug_abbrev, "", @progbits
	.uleb128 1, 0x11		# DW_TAG_compile_unit, with children
	.byte 1
	.uleb128 0x11, 0x01		# DW_AT_low_pc, DW_FORM_addr
	.uleb128 0x12, 0x06		# DW_AT_high_pc, DW_FORM_data4
	.uleb128 0, 0
	.uleb128 2, 0x2e		# DW_TAG_subprogram
	.byte 0
	.uleb128 0x31, 0x13		# DW_AT_abstract_origin, DW_FORM_ref4
	.uleb128 0x11, 0x01
	.uleb128 0x12, 0x06
	.uleb128 0, 0
	.uleb128 3, 0x2e		# DW_TAG_subprogram, with children
	.byte 1
	.uleb128 0x03, 0x08		# DW_AT_name, DW_FORM_string
	.uleb128 0x11, 0x01
	.uleb128 0x12, 0x06
	.uleb128 0, 0
	.uleb128 4, 0x1d		# DW_TAG_inlined_subroutine, with children
	.byte 1
	.uleb128 0x31, 0x13
	.uleb128 0x11, 0x01
	.uleb128 0x12, 0x06
	.uleb128 0, 0
	.uleb128 5, 0x13		# DW_TAG_structure_type, with children
	.byte 1
	.uleb128 0x01, 0x13		# DW_AT_sibling, DW_FORM_ref4
	.uleb128 0, 0
	.uleb128 0

	.section .debug_info, "", @progbits
unit:
	.long unit_end - unit_start
unit_start:
	.short 4
	.long 0
	.byte 8
	.uleb128 1
	.quad _start
	.long end - _start
die_a:
	.uleb128 2
	.long die_a - unit
	.quad a
	.long 4
die_b:
	.uleb128 2
	.long die_c - unit
	.quad b
	.long 4
die_c:
	.uleb128 2
	.long die_b - unit
	.quad c
	.long 4
die_d:
	.uleb128 3
	.asciz "d"
	.quad d
	.long 4
	.rept 600
	.uleb128 4
	.long die_d - unit
	.quad d
	.long 4
	.endr
	.fill 601, 1, 0
	.uleb128 5
	.long behind_type - unit
	.uleb128 99			# no abbreviation has this number
	.byte 0
behind_type:
	.byte 0
unit_end:
