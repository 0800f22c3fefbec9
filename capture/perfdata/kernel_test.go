package perfdata

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"unspool/capture/perfdata/kallsyms"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// fakeRoot makes a directory with the files that tell about a kernel.
func fakeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	kernelList = `0000000000000000 A fixed_percpu_data
ffffffff9a000000 T _stext
ffffffff9a000000 T _text
ffffffff9b2089a7 T _etext
ffffffff9ba34000 D _edata
ffffffffc0a15010 t xfs_trans	[xfs]
ffffffffc0a15020 t _text	[xfs]
`
	// A note of another type, then the build ID.
	notes = "\x06\x00\x00\x00\x01\x00\x00\x00\x00\x01\x00\x00Linux\x00\x00\x00\x00\x00\x00\x00" +
		"\x04\x00\x00\x00\x05\x00\x00\x00\x03\x00\x00\x00GNU\x00\x01\x02\x03\x04\x05\x00\x00\x00"
)

func TestKernelRecords(t *testing.T) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	lib := "/lib/modules/" + unix.ByteSliceToString(uts.Release[:])
	id := []byte{1, 2, 3, 4, 5}
	type mapping struct {
		addr, size, offset uint64
		path               string
	}
	kernel := mapping{0xffffffff9a000000, 0x1a34000, 0xffffffff9a000000, "[kernel.kallsyms]_text"}
	for _, test := range []struct {
		name  string
		files map[string]string
		want  []mapping
		ids   []FileBuildID
		err   error
	}{
		{"no modules", map[string]string{"proc/kallsyms": kernelList, "sys/kernel/notes": notes},
			[]mapping{kernel}, []FileBuildID{{kernelName, id, true}}, nil},
		{"modules", map[string]string{"proc/kallsyms": kernelList,
			"proc/modules": "xfs 2097152 1 - Live 0xffffffffc0a15000\nsnd_pcm 4096 0 - Live " +
				"0xffffffffc0c15000 (OE)\n",
			lib + "/modules.dep":                          "kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz\n",
			"sys/module/snd_pcm/notes/.note.gnu.build-id": notes[24:]},
			[]mapping{kernel, {0xffffffffc0a15000, 2097152, 0, lib + "/kernel/fs/xfs/xfs.ko.xz"},
				{0xffffffffc0c15000, 4096, 0, "[snd_pcm]"}},
			[]FileBuildID{{"[snd_pcm]", id, true}}, nil},
		{"no data symbol", map[string]string{
			"proc/kallsyms": "ffffffff9a000000 T _stext\nffffffff9b2089a7 T _etext\n"},
			[]mapping{{0xffffffff9a000000, 0x12089a7, 0xffffffff9a000000, "[kernel.kallsyms]_stext"}}, nil, nil},
		{"size of the code", map[string]string{"proc/kallsyms": strings.Replace(kernelList, "_etext",
			"first\nffffffff9b2089a7 T _etext", 1), "proc/iomem": "00000000-00000fff : Reserved\n" +
			"00100000-3fffffff : System RAM\n  01000000-0189ffff : Kernel code\n" +
			"  01a00000-0300cfff : Kernel rodata\n"},
			[]mapping{{0xffffffff9a000000, 0x8a0000, 0xffffffff9a000000, "[kernel.kallsyms]_text"}}, nil, nil},
		{"size that is hidden", map[string]string{"proc/kallsyms": kernelList,
			"proc/iomem": "  00000000-00000000 : Kernel code\n"}, []mapping{kernel}, nil, nil},
		{"size that cannot be", map[string]string{"proc/kallsyms": kernelList,
			"proc/iomem": "  02000000-01000000 : Kernel code\n"}, []mapping{kernel}, nil, nil},
		{"hidden", map[string]string{"proc/kallsyms": "0000000000000000 T _text\n", "sys/kernel/notes": notes},
			nil, []FileBuildID{{kernelName, id, true}}, kallsyms.ErrHidden},
		{"empty", map[string]string{"proc/kallsyms": ""}, nil, nil, kallsyms.ErrHidden},
		{"no file", nil, nil, nil, os.ErrNotExist},
	} {
		attr := liveEvent("", 0).PerfEventAttr
		f := perfring.NewFormat(&attr)
		records, ids, err := kernelRecords(&f, fakeRoot(t, test.files))
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v", test.name, err)
		}
		if !reflect.DeepEqual(ids, test.ids) {
			t.Errorf("%s: build IDs %v", test.name, ids)
		}
		var got []mapping
		for _, b := range records {
			rec, err := perfring.CheckRecord(b)
			if err != nil {
				t.Fatal(err)
			}
			var m perfring.Mmap
			if err := perfring.DecodeMmap(rec, &m); err != nil {
				t.Fatal(err)
			}
			if time, ok := f.Time(rec); time != 0 || !ok || m.PID != 1<<32-1 || m.Misc != miscKernel {
				t.Errorf("%s: time %d, %+v", test.name, time, m)
			}
			got = append(got, mapping{m.Addr, m.Len, m.Offset, string(m.Path)})
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// The records about this kernel must be the same as perf's.
func TestKernelRecordsAreThoseOfPerf(t *testing.T) {
	events := []perfring.Attr{liveEvent("cpu-clock", 0, 11)}
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	f = f.Unwound()
	records, ids, err := KernelRecords(&f)
	if err != nil {
		t.Skip(err)
	}
	r := openFile(t, recordWithPerf(t, "-g"))
	var want, got perfring.Mmap
	for len(want.Path) == 0 {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		var identified perfring.Mmap2 // of perf 7.2
		switch rec.Type() {
		case perfring.RecordMmap:
			err = perfring.DecodeMmap(rec, &want)
		case perfring.RecordMmap2:
			err = perfring.DecodeMmap2(rec, &identified)
			want = perfring.Mmap{Misc: identified.Misc &^ unix.PERF_RECORD_MISC_MMAP_BUILD_ID, PID: identified.PID,
				TID: identified.TID, Addr: identified.Addr, Len: identified.Len, Offset: identified.Offset,
				Path: identified.Path}
			if !bytes.Equal(identified.BuildID, ids[0].ID) {
				t.Errorf("build ID %x, perf has %x", ids[0].ID, identified.BuildID)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := perfring.DecodeMmap(records[0], &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, perf has %+v, %v", got, want, err)
	}
	for _, id := range r.BuildIDs() {
		if id.Kernel && id.Path == kernelName && !reflect.DeepEqual(id, ids[0]) {
			t.Errorf("build ID %x, perf has %x", ids[0].ID, id.ID)
		}
	}

	// And perf names the kernel's functions by it.
	rec := sample(11, 5, 77, want.Addr+0x40)
	le.PutUint16(rec[4:], miscKernel)
	le.PutUint64(rec[recordHeader+7*8:], 1<<64-128) // PERF_CONTEXT_KERNEL
	path := filepath.Join(t.TempDir(), "perf.data")
	w := write(t, Options{Path: path, Events: events}, [][][]byte{records, {rec}}, nil)
	closeWriter(t, w)
	text, err := exec.Command("perf", "script", "-F", "ip,sym,dso", "-i", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	s := string(text)
	if !strings.Contains(s, "([kernel.kallsyms])") || strings.Contains(s, "[unknown]") {
		t.Errorf("perf script prints %q", s)
	}
}
