package symbols

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unspool/vmas"
)

const kernelList = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T srso_alias_untrain_ret
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t local_one
ffffffff81000100 W weak_one
ffffffff81000200 T __do_sys
ffffffff81000200 t __x
ffffffff81000300 D some_data
ffffffff81000a00 T last
ffffffffc0100000 t ext4_start	[ext4]
ffffffffc0100080 t ext4_end	[ext4]
ffffffffc0200000 t bpf_prog_1	[bpf]
`

func kernelFiles(t *testing.T, kallsyms, modules string) Options {
	dir := t.TempDir()
	o := Options{Kallsyms: filepath.Join(dir, "kallsyms"), Modules: filepath.Join(dir, "modules")}
	for path, text := range map[string]string{o.Kallsyms: kallsyms, o.Modules: modules} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestKernelFunctions(t *testing.T) {
	const modules = "ext4 16384 1 - Live 0xffffffffc0100000\nxfs 4096 0 - Live 0xffffffffc0300000 " +
		"(O)\nhidden 4096 0 - Live 0x0000000000000000\n"
	for _, c := range []struct {
		name        string
		shift       uint64
		addr        uint64
		want, image string
	}{
		{"first, the longest alias", 0, 0xffffffff81000001, "srso_alias_untrain_ret", KernelImage},
		{"weak before local", 0, 0xffffffff81000100, "weak_one", KernelImage},
		{"global before local", 0, 0xffffffff810009ff, "__do_sys", KernelImage},
		{"last of the kernel", 0, 0xffffffff81001fff, "last", KernelImage},
		{"beyond the kernel", 0, 0xffffffff81002000, "", KernelImage},
		{"module", 0, 0xffffffffc010007f, "ext4_start", "[ext4]"},
		{"beyond the module's functions", 0, 0xffffffffc0102fff, "", "[ext4]"},
		{"module that kallsyms does not name", 0, 0xffffffffc0300010, "", "[xfs]"},
		{"bpf", 0, 0xffffffffc0200010, "bpf_prog_1", "[bpf]"},
		{"below", 0, 0xffffffff80000000, "", KernelImage},
		{"recorded before a restart", 0x4000000, 0xffffffff85000a10, "last", KernelImage},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(kernelFiles(t, kernelList, modules))
			s.SetKernel(KernelID{Ref: "_stext", RefAddr: 0xffffffff81000000 + c.shift})
			f, image, ok := s.Kernel(c.addr)
			if f.Name != c.want || image != c.image || ok != (c.want != "") ||
				ok && (c.addr < f.Addr || c.addr-f.Addr >= f.Size) {
				t.Errorf("%+v in %s, %v", f, image, ok)
			}
			if p := s.Problems(); len(p) != 0 {
				t.Errorf("problems: %q", p)
			}
		})
	}
}

func TestHiddenKernelAddressesAreNamed(t *testing.T) {
	s := New(kernelFiles(t, "0000000000000000 T _text\n0000000000000000 t one\t[ext4]\n", ""))
	for range 2 {
		if f, _, ok := s.Kernel(0xffffffff81000000); ok {
			t.Errorf("%+v", f)
		}
	}
	if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], "it was copied by who may not see them") {
		t.Errorf("problems: %q", p)
	}
}

func TestAnotherKernelIsNotUsed(t *testing.T) {
	for _, id := range []KernelID{{BuildID: make([]byte, 20)}, {Release: "1.2.3-other"}} {
		id.BuildID = append([]byte(nil), id.BuildID...)
		for i := range id.BuildID {
			id.BuildID[i] = 0xee
		}
		s := New(Options{})
		s.SetKernel(id)
		if f, _, ok := s.Kernel(0xffffffff81000000); ok {
			t.Errorf("%+v", f)
		}
		if s.Image("[vdso]", nil, vmas.FileID{}).Table() != nil {
			t.Error("the vDSO of another kernel is used")
		}
		if p := s.Problems(); len(p) != 2 || !strings.Contains(p[0], "running kernel") {
			t.Errorf("problems: %q", p)
		}
	}
}

func TestRunningKernel(t *testing.T) {
	s := New(Options{})
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		addr, name, ok := strings.Cut(strings.TrimSpace(line), " T ")
		if !ok || name != "schedule" {
			continue
		}
		a := uint64(0)
		for _, c := range addr {
			a = a<<4 | uint64(strings.IndexRune("0123456789abcdef", c))
		}
		if a == 0 {
			t.Skip("kptr_restrict hides the kernel's addresses")
		}
		if f, image, ok := s.Kernel(a + 1); !ok || f.Name != "schedule" || image != KernelImage || f.Size > 1<<16 {
			t.Errorf("%+v in %s, %v", f, image, ok)
		}
		return
	}
	t.Skip("no schedule in /proc/kallsyms")
}
