# Its line table names the source file by DW_LNE_define_file, in the line program and not in its header, as the ELF
# files do that `perf inject --jit` makes. DWARF 2, as that opcode has gone with DWARF 5.
	.text
	.globl _start
	.type _start, @function
_start:	nop
1:	jmp 1b
.Lend:	.size _start, . - _start

	.section .debug_abbrev, "", @progbits
.Labbreviations:
	.uleb128 1, 0x11	# DW_TAG_compile_unit
	.byte 0			# without children
	.uleb128 0x10, 6	# DW_AT_stmt_list, DW_FORM_data4
	.uleb128 0x11, 1	# DW_AT_low_pc, DW_FORM_addr
	.uleb128 0x12, 1	# DW_AT_high_pc, DW_FORM_addr
	.byte 0, 0, 0

	.section .debug_info, "", @progbits
	.long .Lunit_end - .Lunit
.Lunit:	.short 2
	.long .Labbreviations
	.byte 8
	.uleb128 1
	.long .Ltable
	.quad _start, .Lend
.Lunit_end:

	.section .debug_line, "", @progbits
.Ltable:
	.long .Ltable_end - .Lversion
.Lversion:
	.short 2
	.long .Lprogram - .Lheader
.Lheader:
	.byte 1, 1, -5, 14, 10			# min_inst_length, default_is_stmt, line_base, line_range, opcode_base
	.byte 0, 1, 1, 1, 1, 0, 0, 0, 1
	.byte 0, 0				# neither directories nor files
.Lprogram:
	.byte 0, 9, 2				# DW_LNE_set_address
	.quad _start
	.byte 0
	.uleb128 .Ldefined - .Ldefine
.Ldefine:
	.byte 3					# DW_LNE_define_file
	.asciz "/src/generated.js"
	.uleb128 0, 0, 0
.Ldefined:
	.byte 4
	.uleb128 1				# DW_LNS_set_file
	.byte 3
	.sleb128 41				# DW_LNS_advance_line
	.byte 1					# DW_LNS_copy
	.byte 2
	.uleb128 .Lend - _start			# DW_LNS_advance_pc
	.byte 0, 1, 1				# DW_LNE_end_sequence
.Ltable_end:
	.section .note.GNU-stack, "", @progbits
