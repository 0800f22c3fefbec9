package session

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/session/sessiontest"
	"unspool/unwind"
	"unspool/vmas"
)

func TestFindLoaders(t *testing.T) {
	for _, c := range []struct {
		name, kallsyms string
		want           []kernelRange
	}{
		{"two", `ffffffff81000000 T _text
ffffffff81001000 T begin_new_exec
ffffffff81002000 t elf_load
ffffffff81003000 t load_elf_binary
ffffffff81003000 t alias
ffffffff81003800 t load_elf_binary_after
ffffffff81004000 t load_elf_binary
ffffffff81004400 T next
ffffffffc0000000 t module_function	[module]
`, []kernelRange{{0xffffffff81003000, 0xffffffff81003800}, {0xffffffff81004000, 0xffffffff81004400}}},
		{"hidden", "0000000000000000 T _text\n0000000000000000 t load_elf_binary\n0000000000000000 t next\n", nil},
		{"last", "ffffffff81003000 t load_elf_binary\n", nil},
		{"a module's", "ffffffffc0000000 t load_elf_binary\t[module]\nffffffffc0000010 t next\t[module]\n", nil},
		{"none", "ffffffff81003000 t load_script\n", nil},
		{"damaged", "ffffffff81003000 t load_elf_binary\n?\nffffffff81003800 t next\n", nil},
		{"empty", "", nil},
	} {
		got := findCode(strings.NewReader(c.kallsyms))
		if !slices.Equal(got.loaders, c.want) {
			t.Errorf("%s: %#x, want %#x", c.name, got.loaders, c.want)
		}
		replacers := []kernelRange{{0xffffffff81001000, 0xffffffff81002000}}
		if strings.Contains(c.kallsyms, "begin_new_exec") != slices.Equal(got.replacers, replacers) {
			t.Errorf("%s: memory is replaced by %#x", c.name, got.replacers)
		}
	}
}

func TestFindEntries(t *testing.T) {
	const loaders = "ffffffff81003000 t load_elf_binary\nffffffff81003800 t next\n" +
		"ffffffff81004000 t load_elf_binary\nffffffff81004400 T next\n"
	for _, c := range []struct {
		name, kallsyms string
		want           []kernelRange
	}{
		{"before the loaders", `ffffffff81000000 T _text
ffffffff81000010 T __entry_text_start
ffffffff81000080 T entry_SYSCALL_64
ffffffff81001a87 T __entry_text_end
ffffffff81002000 T ret_from_fork_asm
ffffffff81002040 T next
` + loaders, []kernelRange{{0xffffffff81000010, 0xffffffff81001a87},
			{0xffffffff81002000, 0xffffffff81002040}}},
		{"behind them", loaders + "ffffffff81e00000 T __entry_text_start\n" +
			"ffffffff81e02000 T __entry_text_end\n", nil},
		{"without a beginning", "ffffffff81001a87 T __entry_text_end\n" + loaders, nil},
		{"hidden", "0000000000000000 T __entry_text_start\n0000000000000000 T __entry_text_end\n", nil},
	} {
		if got := findCode(strings.NewReader(c.kallsyms)).entries; !slices.Equal(got, c.want) {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// The kernel of a recording is identified by the address at which it was loaded.
func TestRecordedExecve(t *testing.T) {
	b, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Skip(err)
	}
	var addr uint64
	for line := range strings.Lines(string(b)) {
		if hex, ok := strings.CutSuffix(line, " T _text\n"); ok {
			addr, _ = strconv.ParseUint(hex, 16, 64)
			break
		}
	}
	if addr == 0 {
		t.Skip("the kernel hides its symbols")
	}
	known := func(addr uint64) execve {
		e := execve{ref: "_text", refAddr: addr, open: os.Open}
		e.identify()
		return e
	}
	live := openExecve()
	live.read()
	if e := known(addr); len(e.loaders) == 0 || len(e.loaders) != len(live.loaders) ||
		len(e.replacers) != 1 {
		t.Errorf("the running kernel: %v, %v", e.loaders, e.replacers)
	}
	for _, other := range []uint64{0, addr + 0x200000} {
		if e := known(other); e.loaders != nil {
			t.Errorf("a kernel at %#x: %v", other, e.loaders)
		}
	}
}

func TestSamplesInsideExecve(t *testing.T) {
	const kernel, inside, outside = ^uint64(127), 0xffffffff81003123, 0xffffffff81005000
	const giving, entry = 0xffffffff81002123, 0xffffffff81000100
	// In code without CFI, whose caller is the frame that BP points to.
	stack := make([]byte, 64)
	binary.LittleEndian.PutUint64(stack[16:], 0x8000) // beyond the copy
	binary.LittleEndian.PutUint64(stack[24:], 0x1800)
	old := sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_KERNEL, Chain: []uint64{kernel, 9, inside, 9},
		ABI: unix.PERF_SAMPLE_REGS_ABI_64, IP: 0x1234, BP: 0x7010, SP: 0x7000, Stack: stack, DynSize: 64}
	with := func(f func(*sessiontest.RawSample)) sessiontest.RawSample { s := old; f(&s); return s }
	for _, c := range []struct {
		name       string
		sample     sessiontest.RawSample
		user, exec uint64
		end        unwind.Reason
	}{
		{"the old program's stack is there", old, 1, 0, unwind.DumpTooShort},
		{"there is no stack", with(func(s *sessiontest.RawSample) { s.DynSize = 0 }), 0, 1, 0},
		{"no stack, in a fault",
			with(func(s *sessiontest.RawSample) { s.DynSize, s.Chain = 0, []uint64{kernel, 9, entry} }), 1, 0,
			unwind.DumpTooShort},
		{"no stack, and the kernel's part breaks off",
			with(func(s *sessiontest.RawSample) { s.DynSize, s.Chain = 0, []uint64{kernel, outside} }), 0, 0, 0},
		{"no stack, in user mode", with(func(s *sessiontest.RawSample) {
			s.DynSize, s.Chain, s.Misc = 0, nil, unix.PERF_RECORD_MISC_USER
		}), 1, 0, unwind.DumpTooShort},
		{"where the parent of vfork may run", with(func(s *sessiontest.RawSample) {
			s.PID, s.Chain = 8, []uint64{kernel, 9, giving, inside, 9}
		}), 0, 1, 0},
		{"before that", with(func(s *sessiontest.RawSample) { s.PID = 8 }), 1, 0, unwind.DumpTooShort},
		{"where no parent waits for it", with(func(s *sessiontest.RawSample) {
			s.Chain = []uint64{kernel, 9, giving, inside, 9}
		}), 1, 0, unwind.DumpTooShort},
		{"it has executed a program since it was forked", with(func(s *sessiontest.RawSample) {
			s.PID, s.Chain = 9, []uint64{kernel, 9, giving, inside, 9}
		}), 1, 0, unwind.DumpTooShort},
		{"the new program's stack", with(func(s *sessiontest.RawSample) { s.Stack = make([]byte, 64) }), 0, 1, 0},
		{"no mapping at the old PC", with(func(s *sessiontest.RawSample) { s.IP = 0x5000 }), 0, 1, 0},
		{"another system call", with(func(s *sessiontest.RawSample) {
			s.IP, s.Chain = 0x5000, []uint64{kernel, 9, outside}
		}),
			1, 0, unwind.Unmapped},
		{"user mode", with(func(s *sessiontest.RawSample) { s.IP = 0x5000; s.Misc = unix.PERF_RECORD_MISC_USER }), 1, 0,
			unwind.Unmapped},
		{"no registers", with(func(s *sessiontest.RawSample) { s.ABI = unix.PERF_SAMPLE_REGS_ABI_NONE; s.Stack = nil }), 0, 0,
			0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k sessiontest.Collector
			s := newTestSession(&k)
			s.execve = execve{kernelCode: kernelCode{
				loaders:   []kernelRange{{0xffffffff81003000, 0xffffffff81003800}},
				replacers: []kernelRange{{0xffffffff81002000, 0xffffffff81003000}},
				entries:   []kernelRange{{0xffffffff81000000, 0xffffffff81001000}}}}
			code := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")}
			s.table.Comm(7, 7, []byte("seven"), true)
			s.table.Mmap(7, code)
			s.table.Fork(8, 8, 7, 7)
			s.table.Fork(9, 9, 7, 7)
			s.table.Comm(9, 9, []byte("nine"), true)
			s.table.Mmap(9, code)
			if err := s.Record(c.sample.Record()); err != nil {
				t.Fatal(err)
			}
			if s.Stats.Samples != 1 || s.Stats.User != c.user || s.Stats.Exec != c.exec {
				t.Errorf("%d samples, %d with a user stack, %d inside execve; want 1, %d, %d",
					s.Stats.Samples, s.Stats.User, s.Stats.Exec, c.user, c.exec)
			}
			if c.user == 1 && s.Stats.Ended[c.end] != 1 {
				t.Errorf("ended: %v", s.Stats.Ended)
			}
			if c.user == 0 && s.Stats.Frames != 0 {
				t.Errorf("%d frames", s.Stats.Frames)
			}
			if len(k.Records) != 1 {
				t.Errorf("%d records handed on", len(k.Records))
			}
		})
	}
}
