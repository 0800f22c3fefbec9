package elf

import "debug/elf"

// The gABI's types, as the standard library names them.
type (
	Class           = elf.Class
	CompressionType = elf.CompressionType
	Machine         = elf.Machine
	ProgFlag        = elf.ProgFlag
	ProgType        = elf.ProgType
	SectionFlag     = elf.SectionFlag
	SectionType     = elf.SectionType
	Type            = elf.Type
)

// Those constants of the gABI that other packages use.
const (
	ELFCLASS32 = elf.ELFCLASS32
	ELFCLASS64 = elf.ELFCLASS64

	ET_REL  = elf.ET_REL
	ET_EXEC = elf.ET_EXEC

	EM_386    = elf.EM_386
	EM_X86_64 = elf.EM_X86_64

	PF_X = elf.PF_X
	PF_W = elf.PF_W
	PF_R = elf.PF_R

	SHT_NULL     = elf.SHT_NULL
	SHT_PROGBITS = elf.SHT_PROGBITS
	SHT_SYMTAB   = elf.SHT_SYMTAB
	SHT_STRTAB   = elf.SHT_STRTAB
	SHT_RELA     = elf.SHT_RELA
	SHT_NOBITS   = elf.SHT_NOBITS
	SHT_DYNSYM   = elf.SHT_DYNSYM

	SHF_WRITE      = elf.SHF_WRITE
	SHF_ALLOC      = elf.SHF_ALLOC
	SHF_EXECINSTR  = elf.SHF_EXECINSTR
	SHF_COMPRESSED = elf.SHF_COMPRESSED

	COMPRESS_ZLIB = elf.COMPRESS_ZLIB
	COMPRESS_ZSTD = elf.COMPRESS_ZSTD
)
