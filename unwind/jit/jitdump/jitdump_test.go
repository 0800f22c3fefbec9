package jitdump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

var le = binary.LittleEndian

// header is that of a file for x86-64.
func header() []byte {
	b := le.AppendUint32(nil, magic)
	for _, v := range []uint32{1, headerSize, 62, 0, 4711} {
		b = le.AppendUint32(b, v)
	}
	return le.AppendUint64(le.AppendUint64(b, 1000), 0)
}

func record(kind Kind, time uint64, body []byte) []byte {
	b := le.AppendUint32(nil, uint32(kind))
	b = le.AppendUint32(b, uint32(prefixSize+len(body)))
	return append(le.AppendUint64(b, time), body...)
}

func load(time, addr uint64, code, name string, index uint64) []byte {
	b := le.AppendUint32(le.AppendUint32(nil, 4711), 4712)
	for _, v := range []uint64{addr, addr, uint64(len(code)), index} {
		b = le.AppendUint64(b, v)
	}
	return record(CodeLoad, time, append(append(b, name+"\x00"...), code...))
}

func move(time, from, to, size, index uint64) []byte {
	b := le.AppendUint32(le.AppendUint32(nil, 4711), 4712)
	for _, v := range []uint64{to, from, to, size, index} {
		b = le.AppendUint64(b, v)
	}
	return record(CodeMove, time, b)
}

func unwinding(time uint64, frame, hdr string) []byte {
	b := le.AppendUint64(nil, uint64(len(frame)+len(hdr)))
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(hdr))), 0)
	b = append(append(b, frame...), hdr...)
	return record(UnwindingInfo, time, append(b, make([]byte, -len(b)&7)...))
}

// all reads what there is.
func all(t testing.TB, d *Reader) (records []Entry, err error) {
	t.Helper()
	var r Entry
	for err == nil {
		if err = d.Next(&r); err == nil {
			r.Name = bytes.Clone(r.Name)
			records = append(records, r)
		}
	}
	return records, err
}

func TestRecords(t *testing.T) {
	file := slices.Concat(
		header(),
		unwinding(1, "frame of one", "hdr"),
		record(DebugInfo, 1, make([]byte, 24)),
		load(2, 0x1000, "code", "one", 7),
		load(3, 0x2000, "more code", "two", 8),
		unwinding(4, "", "hdr"),
		load(5, 0x3000, strings.Repeat("x", 3*bufSize), "large", 9),
		record(99, 6, []byte("of a later version")),
		move(7, 0x2000, 0x9000, 9, 8),
		record(CodeClose, 8, nil),
	)
	d, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Header{Version: 1, Machine: 62, PID: 4711, Time: 1000}); d.Header != want {
		t.Errorf("header %+v, want %+v", d.Header, want)
	}
	got, err := all(t, d)
	if err != io.EOF {
		t.Errorf("ended with %v", err)
	}
	want := []Entry{
		{Kind: CodeLoad, Time: 2, PID: 4711, TID: 4712, Addr: 0x1000, Size: 4, Index: 7, Name: []byte("one"),
			Frame: []byte("frame of one")},
		{Kind: CodeLoad, Time: 3, PID: 4711, TID: 4712, Addr: 0x2000, Size: 9, Index: 8, Name: []byte("two")},
		{Kind: CodeLoad, Time: 5, PID: 4711, TID: 4712, Addr: 0x3000, Size: 3 * bufSize, Index: 9,
			Name: []byte("large")},
		{Kind: CodeMove, Time: 7, PID: 4711, TID: 4712, Addr: 0x9000, From: 0x2000, Size: 9, Index: 8},
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.Kind != w.Kind || g.Time != w.Time || g.PID != w.PID || g.TID != w.TID || g.Addr != w.Addr ||
			g.From != w.From ||
			g.Size != w.Size || g.Index != w.Index || string(g.Name) != string(w.Name) ||
			string(g.Frame) != string(w.Frame) {
			t.Errorf("record %d is %+v, want %+v", i, g, w)
		}
	}
	if a := want[0].FrameAddr(); a != 8 {
		t.Errorf(".eh_frame of 4 bytes of code at %d, want 8", a)
	}
	if a := want[1].FrameAddr(); a != 16 {
		t.Errorf(".eh_frame of 9 bytes of code at %d, want 16", a)
	}
}

// growing is a file that has its first n bytes so far.
type growing struct {
	content []byte
	n       int
}

func (g *growing) ReadAt(b []byte, off int64) (int, error) {
	return bytes.NewReader(g.content[:g.n]).ReadAt(b, off)
}

// TestFileThatGrows reads a file at each length that it has had: a record
// comes when its last byte is there, and no earlier.
func TestFileThatGrows(t *testing.T) {
	large := strings.Repeat("x", bufSize+100)
	parts := [][]byte{header(), unwinding(1, "frame", "hdr"), load(2, 0x1000, "code", "one", 1),
		load(3, 0x2000, large, "two", 2)}
	g := &growing{content: slices.Concat(parts...)}
	var ends []int // of the loads
	for i, n := 0, 0; i < len(parts); i++ {
		if n += len(parts[i]); i >= 2 {
			ends = append(ends, n)
		}
	}
	var d *Reader
	read := 0
	for g.n = 0; g.n <= len(g.content); g.n++ {
		if g.n > ends[0]+200 && g.n < ends[1]-200 {
			g.n = ends[1] - 200
		}
		if d == nil {
			var err error
			if d, err = NewReader(g); err != nil {
				if err != io.EOF || g.n >= headerSize {
					t.Fatalf("%d bytes: %v", g.n, err)
				}
				continue
			}
		}
		got, err := all(t, d)
		if err != io.EOF {
			t.Fatalf("%d bytes: %v", g.n, err)
		}
		for _, r := range got {
			if g.n != ends[read] {
				t.Errorf("%s came at %d bytes, want %d", r.Name, g.n, ends[read])
			}
			if want := read == 0; (r.Frame != nil) != want {
				t.Errorf("%s has CFI: %v", r.Name, r.Frame != nil)
			}
			read++
		}
	}
	if read != 2 {
		t.Errorf("%d records", read)
	}
}

func TestRefused(t *testing.T) {
	with := func(at int, v uint32) []byte {
		b := header()
		le.PutUint32(b[at:], v)
		return b
	}
	swapped := header()
	slices.Reverse(swapped[:4])
	claims := func(off int, v uint64, body []byte) []byte {
		le.PutUint64(body[off:], v)
		return append(header(), body...)
	}
	for _, c := range []struct {
		name string
		file []byte
		err  error
		says string
	}{
		{"other byte order", swapped, ErrNotJitdump, "byte order"},
		{"ELF", append([]byte("\x7fELF"), header()[4:]...), ErrNotJitdump, "magic"},
		{"version", with(4, 2), ErrNotJitdump, "version 2"},
		{"short header", with(8, 39), ErrNotJitdump, "header"},
		{"long header", with(8, 1<<20), ErrNotJitdump, "header"},
		{"machine", with(12, 183), ErrNotJitdump, "EM_AARCH64"},
		{"record without a prefix", append(header(), make([]byte, 16)...), ErrBad, "record of 0 bytes"},
		{"record of gigabytes", append(header(), bytes.Repeat([]byte{0x7f}, 64)...), ErrBad, "record of"},
		{"load too short", append(header(), record(CodeLoad, 1, make([]byte, 39))...), ErrBad, "CODE_LOAD"},
		{"move too short", append(header(), record(CodeMove, 1, make([]byte, 40))...), ErrBad, "CODE_MOVE"},
		{"unwinding too short", append(header(), record(UnwindingInfo, 1, make([]byte, 23))...), ErrBad,
			"UNWINDING_INFO"},
		{"unwinding claims more", claims(16, 1<<40, unwinding(1, "frame", "hdr")), ErrBad, "shorter than it says"},
		{"header claims more", claims(24, 9, unwinding(1, "frame", "hdr")), ErrBad, "shorter than it says"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := NewReader(bytes.NewReader(c.file))
			if err == nil {
				_, err = all(t, d)
			}
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v; want %q", err, c.says)
			}
			if d != nil {
				if _, again := all(t, d); again != err {
					t.Errorf("asked again: %v", again)
				}
			}
		})
	}
}

// TestNode reads what node writes.
func TestNode(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	cmd := exec.Command("node", "--perf-prof", "--perf-prof-unwinding-info", "-e",
		"function hot(a) { let s = 0; for (let i = 0; i < 100; i++) s = (s * 31 + a) | 0; return s } for (let i "+
			"= 0; i < 1e6; i++) hot(i)")
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	paths, _ := filepath.Glob(filepath.Join(cmd.Dir, "jit-*.dump"))
	if len(paths) != 1 {
		t.Fatalf("files: %v", paths)
	}
	f, err := os.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := all(t, d)
	if err != io.EOF {
		t.Error(err)
	}
	// Optimized code has CFI, and its name begins so.
	hot := slices.ContainsFunc(got, func(r Entry) bool {
		return r.Frame != nil && bytes.HasPrefix(r.Name, []byte("JS:*hot "))
	})
	if !hot || slices.ContainsFunc(got, func(r Entry) bool { return len(r.Name) == 0 || r.Size == 0 }) {
		t.Errorf("%d records, one with CFI for hot: %v", len(got), hot)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(slices.Concat(header(), unwinding(1, "frame", "hdr"), load(2, 0x1000, "code", "one", 1),
		move(3, 0x1000, 0x2000, 4, 1)), 50)
	f.Add(slices.Concat(header(), record(CodeClose, 1, nil), record(DebugInfo, 1, make([]byte, 16))), 0)
	for _, dump := range inputs.Files(8, 64<<10, "../../../dist/inputs/jit*.dump") {
		f.Add(dump, len(dump))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, content []byte, n int) {
		defer costs.For(len(content)).Check(t)()
		g := &growing{content, min(max(n, 0), len(content))}
		d, err := NewReader(g)
		if err != nil {
			return
		}
		some, err := all(t, d)
		if err == io.EOF {
			g.n = len(content)
			more, _ := all(t, d)
			some = append(some, more...)
		}
		if len(some) > len(content)/prefixSize {
			t.Fatalf("%d records in %d bytes", len(some), len(content))
		}
		// Where the file was cut makes no difference.
		whole, err := NewReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if once, _ := all(t, whole); len(once) != len(some) {
			t.Fatalf("%d records at once, %d in two readings", len(once), len(some))
		}
	}))
}
