package dwarfcfi

import (
	"bytes"
	std "debug/elf"
	"os"
	"testing"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// compiled is a CIE as compilers write it, padded to a multiple of four bytes.
var compiled = cieSpec{augmentation: "zR", data: []byte{pePCRel | peSdata4}, program: join(callSite, 0, 0)}

// Where unmarkedELF has its segments.
const (
	codeAt, codeSize = 0x401000, 0x10000
	dataAt           = 0x500000
)

// unmarkedELF writes an x86-64 executable whose headers name two segments and nothing
// else: one of code, which no test reads, and one of constants.
func unmarkedELF(constants []byte) []byte {
	b := join(0x7f, "ELF", 2, 1, 1, make([]byte, 9))
	b = le.AppendUint16(le.AppendUint16(b, 2), uint16(elf.EM_X86_64))
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, codeAt), 64), 0)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{64, 56, 2, 64, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	segment := func(flags elf.ProgFlag, offset, addr, size uint64) {
		b = le.AppendUint32(le.AppendUint32(b, uint32(std.PT_LOAD)), uint32(flags))
		for _, v := range []uint64{offset, addr, addr, size, size, 0x1000} {
			b = le.AppendUint64(b, v)
		}
	}
	segment(elf.PF_R|elf.PF_X, 0x1000, codeAt, codeSize)
	segment(elf.PF_R, 0x11000, dataAt, uint64(len(constants)))
	return append(append(b, make([]byte, 0x11000-len(b))...), constants...)
}

// compiledFrames appends a CIE and n FDEs for functions of 16 bytes from start on to b, which
// lies at dataAt and beyond.
func compiledFrames(b *builder, start, n int) {
	cie := b.cie(compiled)
	for i := range n {
		at := dataAt + uint64(len(b.Data)) + 8
		b.fde(cie, le.AppendUint32(le.AppendUint32(nil, uint32(uint64(start+16*i)-at)), 16), 0, 0, 0)
	}
}

func scanned(t testing.TB, file []byte) elf.Extent {
	t.Helper()
	l, err := elf.ReadLayout(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return locate(bytes.NewReader(file), l).frame
}

func TestEhFrameIsFoundByItsEntries(t *testing.T) {
	fill := func(n int) []byte { return bytes.Repeat([]byte{0x01, 'z', 'R', 0}, n/4) }
	run := func(before []byte, parts ...int) []byte {
		b := builder{eh: true}
		b.Data = before
		for _, n := range parts {
			compiledFrames(&b, codeAt, n)
		}
		return b.Data
	}
	const cie, fde = 24, 20
	end := []byte{0, 0, 0, 0}
	for _, c := range []struct {
		name      string
		constants []byte
		at, size  int
	}{
		{"alone", join(run(nil, 1), end), 0, cie + fde},
		{"after constants, before others", join(run(fill(400), 3), end, fill(400)), 400, cie + 3*fde},
		{"up to the end of the segment", run(fill(400), 3), 400, cie + 3*fde},
		{"up to something else", join(run(fill(400), 3), fill(400)), 400, cie + 3*fde},
		{"after zeroes", join(run(make([]byte, 400), 3), end), 400, cie + 3*fde},
		{"of several files", join(run(nil, 3, 1, 2), end), 0, 3*cie + 6*fde},
		{"the longest", join(run(run(run(nil, 2), 0)[:2*cie+2*fde-4], 5), end), 2*cie + 2*fde - 4, cie + 5*fde},
		{"over the pieces that are read", join(run(fill(windowSize-12), 500), end), windowSize - 12, cie + 500*fde},
		{"longer than a piece", join(run(fill(4000), 4000, 60000), end), 4000, 2*cie + 64000*fde},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := unmarkedELF(c.constants)
			if len(c.constants) > windowSize {
				le.PutUint64(file[64+32:], 1<<20) // p_filesz and p_memsz of the code
				le.PutUint64(file[64+40:], 1<<20)
			}
			got := scanned(t, file)
			want := elf.Extent{Addr: dataAt + uint64(c.at), Offset: 0x11000 + uint64(c.at), Size: uint64(c.size)}
			if got != want {
				t.Fatalf("got %+v, want %+v", got, want)
			}
			var row Row
			if err := tableOf(t, file).Row(codeAt+8, &row); err != nil || row.CFA.Offset != 8 {
				t.Errorf("row %s, %v", show(&row), err)
			}
		})
	}
}

func TestWhatIsNoEhFrame(t *testing.T) {
	template := builder{eh: true}
	compiledFrames(&template, 0, 3)
	alone := builder{eh: true}
	alone.cie(compiled)
	foreign := builder{eh: true}
	compiledFrames(&foreign, codeAt, 3)
	foreign.Data[2*24] ^= 8 // the first FDE's CIE pointer
	for name, constants := range map[string][]byte{
		"nothing":                     nil,
		"zeroes":                      make([]byte, 1<<20),
		"ones":                        bytes.Repeat([]byte{0xff}, 1<<20),
		"starts of CIEs":              bytes.Repeat(alone.Data[:12], 1<<16),
		"CIEs without FDEs":           bytes.Repeat(alone.Data, 1<<12),
		"a template of a code writer": template.Data,
		"shifted":                     append([]byte{1, 2}, foreign.Data...),
		"cut within the first FDE":    foreign.Data[:40],
	} {
		t.Run(name, func(t *testing.T) {
			if got := scanned(t, unmarkedELF(constants)); got.Size != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("Go", func(t *testing.T) {
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Skip(err)
		}
		l, err := elf.ReadLayout(bytes.NewReader(self), int64(len(self)))
		if err != nil {
			t.Fatal(err)
		}
		// With the race detector, a C linker links this test, and .eh_frame is that of the C code.
		if got := scanned(t, withoutSections(self)); got.Addr != l.EhFrame.Addr {
			t.Errorf("got %+v, its headers say %+v", got, l.EhFrame)
		}
	})
}

func TestScanIsBounded(t *testing.T) {
	one := builder{eh: true}
	one.cie(compiled)
	for name, pattern := range map[string][]byte{
		"zeroes":            make([]byte, 1<<10),
		"CIEs":              one.Data,
		"overlapping ones":  bytes.Repeat(append([]byte{0xf0, 0xff, 0, 0}, cieStart...), 2)[:12],
		"ones far too long": join(0, 0, 0, 1, cieStart, "R\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			l := elf.Layout{Class: elf.ELFCLASS64, Machine: elf.EM_X86_64, Loads: []elf.Load{
				{Vaddr: codeAt, Filesz: codeSize, Flags: elf.PF_R | elf.PF_X},
				{Offset: 0x11000, Vaddr: dataAt, Filesz: 1 << 62, Flags: elf.PF_R},
			}}
			r := endless{pattern: pattern}
			if got := scanEhFrame(&r, &l); got.Size != 0 {
				t.Errorf("got %+v", got)
			}
			// Pieces that are read overlap where runs end, so a byte is read twice at most.
			if r.read > 2*maxScanned+2*windowSize {
				t.Errorf("%d bytes read", r.read)
			}
		})
	}
}

// endless is a file that repeats a pattern.
type endless struct {
	pattern []byte
	read    int
}

func (r *endless) ReadAt(b []byte, at int64) (int, error) {
	r.read += len(b)
	for n := 0; n < len(b); {
		n += copy(b[n:], r.pattern[(at+int64(n))%int64(len(r.pattern)):])
	}
	return len(b), nil
}

// TestEhFrameOfStaticPrograms cuts the section headers off static programs.
func TestEhFrameOfStaticPrograms(t *testing.T) {
	const program = "#include <stdio.h>\nint main(void) { return puts(\"\"); }"
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"x86-64", []string{"-static"}},
		{"one segment of code and constants", []string{"-static", "-Wl,-z,noseparate-code"}},
		{"gold", []string{"-static", "-fuse-ld=gold", "-Wl,--no-eh-frame-hdr"}},
		{"i386", []string{"-static", "-m32"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := os.ReadFile(build(t, program, append(c.flags, "-O2", "-no-pie")...))
			if err != nil {
				t.Fatal(err)
			}
			cut := bytes.Clone(file)
			if cut[std.EI_CLASS] == byte(elf.ELFCLASS64) {
				cut = withoutSections(cut)
			} else {
				clear(cut[32:36])
				clear(cut[48:52])
			}
			got, want := scanned(t, cut), scanned(t, file)
			if got.Addr != want.Addr || want.Size-got.Size > 8 { // the terminator
				t.Errorf("got %+v, its headers say %+v", got, want)
			}
			compareRows(t, c.name, tableOf(t, file), tableOf(t, cut))
		})
	}
}

func FuzzScan(f *testing.F) {
	b := builder{eh: true}
	compiledFrames(&b, codeAt, 3)
	f.Add(b.Data)
	compiledFrames(&b, codeAt, 3)
	f.Add(append([]byte("constants   "), b.Data...))
	f.Add(append(b.Data, 0, 0, 0, 0, 1, 2, 3, 4))
	for _, frames := range inputs.Sections(40, 2<<10, ".eh_frame", inputs.Programs...) {
		f.Add(frames)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, constants []byte) {
		defer costs.For(len(constants)).Check(t)()
		l := elf.Layout{Class: elf.ELFCLASS64, Machine: elf.EM_X86_64, Loads: []elf.Load{
			{Offset: 1 << 40, Vaddr: codeAt, Filesz: codeSize, Flags: elf.PF_R | elf.PF_X},
			{Vaddr: dataAt, Filesz: uint64(len(constants)), Flags: elf.PF_R},
		}}
		e := scanEhFrame(bytes.NewReader(constants), &l)
		if e.Size == 0 {
			return
		}
		if e.Offset+e.Size > uint64(len(constants)) || e.Addr != dataAt+e.Offset {
			t.Fatalf("%+v of %d bytes", e, len(constants))
		}
		table, err := New(Sections{EhFrame: Section{Addr: e.Addr, Data: constants[e.Offset:][:e.Size]}, PtrSize: 8})
		if err != nil {
			t.Fatal(err)
		}
		covering := 0
		for d, err := range table.FDEs() {
			if err == nil && d.Start >= codeAt && d.End <= codeAt+codeSize {
				covering++
			}
		}
		if covering == 0 {
			t.Fatal("nothing in it covers code")
		}
	}))
}
