package profile

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/vmas"
)

// neighbours are functions without a gap between them: the byte before one belongs to another. The last one
// is the code that signal handlers return to.
const neighbours = `
	.text
	.macro function name
	.globl \name
	.type \name, @function
\name:
	nop
	nop
	nop
	nop
	.size \name, .-\name
	.endm
	function first
	function second
	function third
	function __restore_rt
	function after
	.section .note.GNU-stack,"",@progbits
`

// TestAddressesOfFrames looks at the functions of addresses in callchains. An interrupted PC is the address of the next
// instruction: at the first byte of a function it belongs to that function. A return address is behind a call, which
// may be the last instruction of its function.
func TestAddressesOfFrames(t *testing.T) {
	dir := t.TempDir()
	source, library, kallsyms := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so"), filepath.Join(dir,
		"kallsyms")
	for path, text := range map[string]string{
		source: neighbours,
		kallsyms: "ffffffff81000000 T _text\nffffffff81000100 T one\nffffffff81000200 T two\n" +
			"ffffffff81000300 T three\nffffffff81000400 T end\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "gcc", "-shared", "-nostdlib", "-o", library, source)
	const at = 0x7f00_0000_0000
	address := make(map[string]uint64)
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		address[s.Name] = at + s.Value - f.Progs[0].Vaddr
	}
	first, second, third := address["first"], address["second"], address["third"]
	restore := address["__restore_rt"]
	const (
		kernel, user    = perfring.ContextKernel, perfring.ContextUser
		one, two, three = 0xffffffff81000100, 0xffffffff81000200, 0xffffffff81000300
	)
	for _, c := range []struct {
		name  string
		misc  uint16
		chain []uint64
		want  []string
	}{
		{"interrupted at the first byte", unix.PERF_RECORD_MISC_USER, []uint64{user, second, third},
			[]string{"second", "second"}},
		{"interrupted at the last byte", unix.PERF_RECORD_MISC_USER, []uint64{user, second + 3, second + 1},
			[]string{"second", "second"}},
		{"without a marker", unix.PERF_RECORD_MISC_USER, []uint64{second, third}, []string{"second", "second"}},
		{"without a callchain", unix.PERF_RECORD_MISC_USER, nil, []string{"third"}},
		{"in the kernel", unix.PERF_RECORD_MISC_KERNEL, []uint64{kernel, two, three, user, second, third},
			[]string{"two", "two", "second", "second"}},
		{"a handler", unix.PERF_RECORD_MISC_USER, []uint64{user, first, restore, second, second},
			[]string{"first", "__restore_rt", "second", "first"}},
		{"a handler that has interrupted the last byte", unix.PERF_RECORD_MISC_USER,
			[]uint64{user, first, restore, third - 1, second + 1},
			[]string{"first", "__restore_rt", "second", "second"}},
		{"the kernel alone", unix.PERF_RECORD_MISC_KERNEL, []uint64{kernel, one, two}, []string{"one", "one"}},
	} {
		l := newLoader(symbols.New(symbols.Options{Kallsyms: kallsyms}))
		l.sym.SetKernel(symbols.KernelID{Ref: "_text", RefAddr: 0xffffffff81000000})
		l.table.Mmap(7, vmas.Map{Addr: at, Len: 0x10000, Prot: vmas.ProtExec, Name: []byte(library)})
		l.sample.PID, l.sample.TID, l.sample.Misc, l.sample.IP = 7, 7, c.misc, third
		l.sample.Callchain = words(c.chain...)
		l.resolve(&l.sample)
		var got []string
		for _, f := range l.frames {
			got = append(got, l.p.Frames[f].Name)
			if at := &l.p.Frames[f]; at.Name == "__restore_rt" && at.PC != at.Addr {
				t.Errorf("%s: the handler returns to %#x, which begins at %#x", c.name, at.PC, at.Addr)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLosses counts the losses that the kernel reports: records, samples, and how often it throttled an
// event.
func TestLosses(t *testing.T) {
	l := newLoader(symbols.New(symbols.Options{}))
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CPU,
		Bits: unix.PerfBitSampleIDAll,
	})
	record := func(typ perfring.RecordType, time, cpu uint64, body ...uint64) perfring.Record {
		b := words(append(append([]uint64{0}, body...), 7<<32|7, time, cpu, 1)...) // header, body, trailer
		b[0], b[6] = byte(typ), byte(len(b))
		return b
	}
	for _, r := range []struct {
		record perfring.Record
		time   uint64
	}{
		{record(perfring.RecordLost, 10, 2, 1, 5), 10},
		{record(perfring.RecordLostSamples, 20, 3, 4), 20},
		{record(perfring.RecordLostSamples, 30, 0, 8), 30},
		{record(perfring.RecordThrottle, 40, 1, 40, 1, 1), 40},
	} {
		l.record(r.record, &format, r.time)
	}
	p := l.finish()
	if p.LostRecords != 5 || p.LostSamples != 12 || p.Throttled != 1 || p.Lost() != 12 || len(p.Problems) != 0 {
		t.Errorf("%d records and %d samples lost, %d in all, throttled %d times; %q", p.LostRecords, p.LostSamples,
			p.Lost(), p.Throttled, p.Problems)
	}
	if want := []Loss{{10, 5, 2}, {20, 4, 3}, {30, 8, 0}, {40, 0, 1}}; !slices.Equal(p.Losses, want) {
		t.Errorf("%v, want %v", p.Losses, want)
	}
}
