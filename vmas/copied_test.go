package vmas

import (
	"fmt"
	"testing"
)

// showCopied returns what the memory at page at may be a copy of, "" for nothing.
func showCopied(s *Space, at uint64) string {
	m := s.Find(at << 12)
	if m == nil || m.Copied == nil {
		return ""
	}
	c := m.Copied
	settled := *m
	settled.Settle()
	return fmt.Sprintf("%d-%d@%d %s, starts@%d", c.Start>>12, c.End>>12, c.Offset>>12, c.File.Path,
		int64(settled.Offset)>>12)
}

func TestMemoryOverCodeMayBeItsCopy(t *testing.T) {
	writable := pages(12, 16, 12, "//anon")
	writable.Prot |= ProtWrite
	for _, c := range []struct {
		name string
		maps []Map
		want string // of page 14
	}{
		{"over a part", []Map{pages(10, 20, 3, "/a"), pages(12, 16, 12, "//anon")}, "12-16@5 /a, starts@5"},
		{"over more than it", []Map{pages(10, 20, 3, "/a"), pages(8, 24, 8, "//anon")}, "10-20@3 /a, starts@1"},
		{"beyond the beginning of the file", []Map{pages(10, 20, 1, "/a"), pages(8, 24, 8, "//anon")},
			"10-20@1 /a, starts@-1"},
		{"protected afterwards", []Map{pages(10, 20, 3, "/a"), writable, pages(12, 16, 12, "//anon")},
			"12-16@5 /a, starts@5"},
		{"protected in part", []Map{pages(10, 20, 3, "/a"), writable, pages(13, 15, 13, "//anon")},
			"12-16@5 /a, starts@6"},
		{"split", []Map{pages(10, 20, 3, "/a"), writable, data(13, 14)}, "12-16@5 /a, starts@7"},
		{"over memory", []Map{pages(10, 20, 3, "//anon"), pages(12, 16, 12, "//anon")}, ""},
		{"over the vDSO", []Map{pages(10, 20, 0, "[vdso]"), pages(12, 16, 12, "//anon")}, ""},
		{"another file", []Map{pages(10, 20, 3, "/a"), pages(12, 16, 12, "/b")}, ""},
		{"unmapped before", []Map{pages(10, 20, 3, "/a"), data(10, 20), pages(12, 16, 12, "//anon")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			forgotten := make(map[string]bool)
			tab := NewTableOf(nil, func(f *File) { forgotten[f.Path] = true })
			for _, m := range c.maps {
				tab.Mmap(1, m)
			}
			if got := showCopied(tab.Space(1), 14); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			checkTable(t, tab)
			tab.Fork(2, 2, 1, 1)
			tab.Mmap(1, pages(0, 1000, 0, "/over"))
			if got := showCopied(tab.Space(2), 14); got != c.want {
				t.Errorf("after a fork: %q, want %q", got, c.want)
			}
			for i := range uint64(maxIdle) {
				tab.Mmap(1, pages(0, 1000, 0, fmt.Sprint("/", i)))
			}
			if c.want != "" && forgotten["/a"] {
				t.Error("/a is forgotten while it may still be asked for")
			}
			tab.Comm(2, 2, []byte("next"), true)
			for i := range uint64(2 * maxIdle) {
				tab.Mmap(1, pages(0, 1000, 0, fmt.Sprint("/other", i)))
			}
			for _, f := range []string{"/a", "//anon"} {
				if tab.files.byKey[fileKey{name: f}] != nil {
					t.Errorf("%s is kept for ever", f)
				}
			}
		})
	}
}

func TestMapsShowCopiesBetweenTheirFile(t *testing.T) {
	tab := NewTable(fakeProc(t, fakeProcess{pid: 5, maps: "" +
		"1000-3000 r--p 00000000 fe:01 7 /a\n" +
		"3000-5000 r-xp 00000000 00:00 0\n" +
		"5000-6000 r-xp 00004000 fe:01 7 /a\n" +
		"8000-9000 r-xp 00000000 00:00 0\n" +
		"9000-a000 rw-p 00000000 00:00 0\n" +
		"a000-b000 r-xp 00000000 00:00 0\n"}))
	s, err := tab.Seed(5)
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, tab)
	for at, want := range map[uint64]string{3: "3-5@2 /a, starts@2", 5: "", 8: "", 10: ""} {
		if got := showCopied(s, at); got != want {
			t.Errorf("page %d: %q, want %q", at, got, want)
		}
	}
	if f := s.Find(3 << 12).Copied.File; f != s.Find(5<<12).File {
		t.Errorf("two files: %+v, %+v", f, s.Find(5<<12).File)
	}
}
