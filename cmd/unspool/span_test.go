package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"unspool/testdata/programs"
)

// farApart puts functions 4 and 7 GiB away from the others, in a file of some
// kilobytes.
const farApart = `SECTIONS
{
	.far 0x1c0000000 : { *(.text.qsort_leaf .ltext.qsort_leaf) }
	.middle 0x100000000 : { *(.text.qsort_compare .ltext.qsort_compare) }
}
INSERT AFTER .bss;
`

// TestCodeFarApart records programs whose code spans more addresses than 32 bits
// can tell apart.
func TestCodeFarApart(t *testing.T) {
	t.Parallel()
	needRoot(t)
	script := filepath.Join(t.TempDir(), "far.ld")
	if err := os.WriteFile(script, []byte(farApart), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, pie := range []string{"no-pie", "pie"} {
		t.Run(pie, func(t *testing.T) {
			// The assembler's own CFI is of 32 bits, as is the search table.
			path := programs.Build(t, "qsort", "-"+pie, "-f"+pie, "-mcmodel=large", "-ffunction-sections",
				"-fno-dwarf2-cfi-asm", "-Wl,--no-eh-frame-hdr", "-Wl,-T,"+script)
			proc := programs.Start(t, path, 20)
			matchChain(t, recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid)), proc.Chain,
				programs.Program{Name: "qsort"})
		})
	}
}
