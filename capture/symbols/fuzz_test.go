package symbols

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func FuzzELFSymbols(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-s"}, {"-O1", "-Wl,-z,ibtplt"},
		{"-m32", "-ffreestanding", "-nostdlib", "-O1"}} {
		text := program
		if flags[0] == "-m32" {
			if runtime.GOARCH != "amd64" {
				continue
			}
			text = "void _start(void) { for (;;) ; }\nint f(int x) { return x; }\n"
		}
		path := compile(f, "p.c", text, flags...)
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(withoutSections(b))
	}
	for _, file := range inputs.Files(40, 40<<10, inputs.Objects...) {
		f.Add(file)
	}
	for _, file := range inputs.Files(20, 40<<10, "../../dist/inputs/*.elf") {
		f.Add(file)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte) {
		defer costs.For(len(b)).Check(t)()
		table, _ := readELF(bytes.NewReader(b), int64(len(b)))
		if table == nil {
			return
		}
		size := len(b)
		if bytes.Contains(b, []byte(".gnu_debugdata")) {
			size += 512<<10 + 64*len(b) // as much as miniDebugInfo may unpack
		}
		if 16*table.Len() > 2*size || len(table.names) > 4*size+maxName {
			t.Errorf("%d functions, %d bytes of names from a file of %d", table.Len(), len(table.names), len(b))
		}
		for i := range table.Len() {
			fn := table.At(i)
			if i > 0 && fn.Addr <= table.At(i-1).Addr {
				t.Fatalf("not sorted at %d", i)
			}
			table.Lookup(fn.Addr)
			table.Lookup(fn.Addr + fn.Size)
			Demangle(fn.Name)
		}
		for _, off := range []uint64{0, 0x1000, uint64(len(b)), 1<<64 - 1} {
			table.Vaddr(off)
		}
	}, inputs.InELF(".symtab", ".strtab", ".dynsym", ".dynstr", ".plt", ".rela.plt", ".gnu", ".eh_frame",
		".note")))
}

func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(kernelList), []byte("ext4 8192 1 - Live 0xffffffffc0100000\n"))
	for _, kallsyms := range inputs.Lines(1, 16<<10, "/proc/kallsyms") {
		f.Add(kallsyms, []byte{})
	}
	for _, modules := range inputs.Lines(1, 16<<10, "/proc/modules") {
		f.Add([]byte(kernelList), modules)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, kallsyms, modules []byte) {
		defer costs.For(len(kallsyms) + len(modules)).Check(t)()
		var k kernel
		_, _ = k.readKallsyms(bytes.NewReader(kallsyms))
		k.readModules(bytes.NewReader(modules))
		for i := range k.table.Len() {
			fn := k.table.At(i)
			k.table.Lookup(fn.Addr)
			findImage(k.images, fn.Addr)
			findImage(k.loaded, fn.Addr)
		}
	}))
}
