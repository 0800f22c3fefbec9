package elf

import "debug/elf"

// The gABI's vocabulary, as the standard library spells it.
type (
	Class           = elf.Class
	CompressionType = elf.CompressionType
	Machine         = elf.Machine
	ProgFlag        = elf.ProgFlag
	Type            = elf.Type
)

// Of its values, those that other packages ask for.
const (
	ELFCLASS32 = elf.ELFCLASS32
	ELFCLASS64 = elf.ELFCLASS64

	ET_EXEC = elf.ET_EXEC

	EM_386    = elf.EM_386
	EM_X86_64 = elf.EM_X86_64

	PF_X = elf.PF_X
	PF_W = elf.PF_W
	PF_R = elf.PF_R

	COMPRESS_ZLIB = elf.COMPRESS_ZLIB
	COMPRESS_ZSTD = elf.COMPRESS_ZSTD
)
