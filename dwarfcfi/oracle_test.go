package dwarfcfi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/frame"
	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/programs"
)

// openTable reads the CFI of a file.
func openTable(t testing.TB, path string) (*Table, *elf.Layout, Sections) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	layout, err := elf.ReadLayout(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	sections, err := ReadSections(f, layout)
	if err != nil {
		t.Fatal(err)
	}
	table, err := New(sections)
	if err != nil {
		t.Fatal(err)
	}
	return table, layout, sections
}

// installed returns the file that a glob pattern or a program's name leads to, "" if there is none.
func installed(pattern string) string {
	if pattern == "cc1plus" {
		out, err := exec.Command("gcc", "-print-prog-name=cc1plus").Output()
		if err != nil {
			return ""
		}
		pattern = strings.TrimSpace(string(out))
	} else if !strings.Contains(pattern, "/") {
		pattern = "/usr/bin/" + pattern
	}
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		return ""
	}
	path, err := filepath.EvalSymlinks(found[len(found)-1])
	if err != nil {
		return ""
	}
	return path
}

// TestRowsAgreeWithReadelf compares rows that binutils prints for whole binaries with ours, at the first and the last
// address of the row. UNSPOOL_ORACLE=all compares every row, and adds the large binaries.
func TestRowsAgreeWithReadelf(t *testing.T) {
	var leftOut []string
	for _, c := range []struct {
		path  string
		large bool
	}{
		{"/lib/x86_64-linux-gnu/libc.so.6", false},
		{"/lib64/ld-linux-x86-64.so.2", false},
		{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", false},
		{"perl", false},
		{"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", true},
		{"/usr/lib/x86_64-linux-gnu/libpython3*.so.1.0", true},
		{"python3", true},
		{"git", true},
		{"gdb", true},
		{"cc1plus", true},
		{"node", true},
		{"/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1", true},
	} {
		if c.large && !programs.AllOracles() {
			leftOut = append(leftOut, filepath.Base(c.path))
			continue
		}
		t.Run(filepath.Base(c.path), func(t *testing.T) {
			path := installed(c.path)
			if path == "" {
				t.Skipf("%s is not installed", c.path)
			}
			compareEvery(t, path, 5)
		})
	}
	if len(leftOut) > 0 {
		t.Run("left out", func(t *testing.T) {
			t.Skipf("four of five FDEs, and %s, which UNSPOOL_ORACLE=all compares, too", strings.Join(leftOut, ", "))
		})
	}
}

// Every instruction, in each version of a CIE and both widths of DWARF, in a real file's
// .debug_frame.
func TestInstructionsAgreeWithReadelf(t *testing.T) {
	path := build(t, freestanding, "-O2", "-g", "-nostdlib", "-static",
		"-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
	for _, wide := range []bool{false, true} {
		b := builder{wide: wide}
		start := uint64(0x1000)
		for _, version := range []byte{1, 3, 4} {
			cie := b.cie(cieSpec{version: version, addrSize: 8, program: callSite})
			for _, c := range instructions {
				switch c.name {
				case "set_loc", "what follows the row is not read",
					"AARCH64_negate_ra_state_with_pc": // unknown to binutils 2.40
					continue
				}
				b.fde(cie, b.abs(start, 0x100), c.program)
				start += 0x100
			}
		}
		section, file := path+".section", path+".all"
		if err := os.WriteFile(section, b.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("objcopy", "--update-section", ".debug_frame="+section, path,
			file).CombinedOutput()
		if err != nil {
			t.Skipf("objcopy: %v: %s", err, out)
		}
		compareWithReadelf(t, file)
	}
}

// The kernel's vDSO is an ELF image that is in no file.
func TestVDSORowsAgreeWithReadelf(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		first, last, _ := strings.Cut(strings.Fields(line)[0], "-")
		start, _ := strconv.ParseUint(first, 16, 64)
		end, _ := strconv.ParseUint(last, 16, 64)
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			t.Skip(err)
		}
		defer mem.Close()
		image := make([]byte, end-start)
		if _, err := mem.ReadAt(image, int64(start)); err != nil {
			t.Skip(err)
		}
		path := t.TempDir() + "/vdso"
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		compareWithReadelf(t, path)
		return
	}
	t.Skip("this kernel maps no vDSO")
}

// delve's reader is a second opinion on where functions are.
func TestFDEsAgreeWithDelve(t *testing.T) {
	for _, path := range []string{libc, "/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		if _, err := os.Stat(path); err != nil {
			t.Logf("left out: %v", err)
			continue
		}
		table, _, sections := openTable(t, path)
		list, err := frame.Parse(sections.EhFrame.Data, le, 0, 8, sections.EhFrame.Addr)
		if err != nil {
			t.Fatalf("%s: delve: %v", path, err)
		}
		type bounds struct{ start, end uint64 }
		theirs := map[bounds]bool{}
		for _, d := range list {
			theirs[bounds{d.Begin(), d.End()}] = true
		}
		n := 0
		for d, err := range table.FDEs() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; !theirs[bounds{d.Start, d.End}] {
				t.Errorf("%s: delve has no FDE over %#x..%#x", path, d.Start, d.End)
			}
		}
		if n != len(list) {
			t.Errorf("%s: %d FDEs, delve has %d", path, n, len(list))
		}
	}
}

// compareWithReadelf compares one file.
func compareWithReadelf(t *testing.T, path string) {
	t.Helper()
	compareEvery(t, path, 1)
}

// compareEvery compares one of so many FDEs of a file.
func compareEvery(t *testing.T, path string, every int) {
	t.Helper()
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("readelf (binutils) is not installed")
	}
	table, layout, _ := openTable(t, path)
	fdes, rows, found := 0, 0, 0
	complaints := 0
	complain := func(format string, args ...any) {
		if complaints++; complaints <= 20 {
			t.Errorf(format, args...)
		}
	}
	for want := range readelfFrames(t, path, every) {
		fdes++
		frames := &table.eh
		if want.section == ".debug_frame" {
			frames = &table.debug
		}
		d, err := frames.fde(want.offset)
		if err != nil {
			complain("FDE: %v", err)
			continue
		}
		if d.Start != want.start || d.End != want.end {
			complain("FDE at %#x covers %#x..%#x, readelf says %#x..%#x", d.Offset, d.Start, d.End, want.start,
				want.end)
			continue
		}
		if got, err := table.FDE(d.Start); d.End > d.Start && d.Start != 0 {
			if err != nil || got.Start != d.Start {
				complain("lookup of %#x finds %#x..%#x (%v)", d.Start, got.Start, got.End, err)
			} else {
				found++
			}
		}
		for i, line := range want.rows {
			start, end := line.loc, want.end
			if i+1 < len(want.rows) {
				end = want.rows[i+1].loc
			}
			if start >= end || end > want.end {
				continue
			}
			rows++
			for _, pc := range []uint64{start, end - 1} {
				var row Row
				if err := d.Row(pc, &row); err != nil {
					complain("row at %#x: %v", pc, err)
					continue
				}
				if diff := line.compare(&row, layout.Machine); diff != "" {
					complain("row at %#x of FDE %#x: %s", pc, d.Offset, diff)
				}
				if row.Start > start || row.End < end {
					complain("row at %#x is %#x..%#x, readelf says %#x..%#x", pc, row.Start, row.End, start, end)
				}
			}
		}
		i := 0
		for row, err := range d.Rows() {
			if err != nil {
				complain("rows of FDE %#x: %v", d.Offset, err)
				break
			}
			for i < len(want.rows) && want.rows[i].loc < row.Start {
				i++
			}
			if len(want.rows) > 0 && (i == len(want.rows) || want.rows[i].loc != row.Start) {
				complain("row at %#x is none of readelf's", row.Start)
			}
		}
	}
	if complaints > 20 {
		t.Errorf("%d more differences", complaints-20)
	}
	if fdes == 0 || rows == 0 {
		t.Fatalf("readelf shows %d FDEs and %d rows", fdes, rows)
	}
	t.Logf("%d FDEs, %d of them looked up, %d rows agree", fdes, found, rows)
}

// readelfFDE is an FDE as readelf --debug-dump=frames-interp prints it.
type readelfFDE struct {
	section            string
	offset, start, end uint64
	rows               []readelfRow
}

type readelfRow struct {
	loc     uint64
	cfa     string
	columns []string // names of the registers
	rules   []string
}

// readelfFrames yields one of so many FDEs; rows are valid until the next.
func readelfFrames(t *testing.T, path string, every int) func(func(*readelfFDE) bool) {
	return func(yield func(*readelfFDE) bool) {
		cmd := exec.Command("readelf", "--debug-dump=frames-interp", "-W", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			io.Copy(io.Discard, out)
			cmd.Wait() // it exits with 1 even for some files that it prints completely
		}()
		var (
			section string
			fde     *readelfFDE
			columns []string
			inCIE   bool
			skips   bool // the rows of an FDE
		)
		hex := func(s string) uint64 {
			v, err := strconv.ParseUint(s, 16, 64)
			if err != nil {
				t.Fatalf("readelf: %v", err)
			}
			return v
		}
		flush := func() bool {
			done := fde
			fde = nil
			return done == nil || yield(done)
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if text := lines.Bytes(); skips && (len(text) == 0 || text[0] == '0') && !bytes.Contains(text, []byte("E")) {
				continue // rows
			}
			fields := strings.Fields(lines.Text())
			switch {
			case len(fields) == 0 || fields[0] == "section" || len(fields) > 1 && fields[1] == "ZERO":
			case fields[0] == "Contents":
				if !flush() {
					return
				}
				section = fields[3]
			case len(fields) > 4 && fields[3] == "CIE":
				if !flush() {
					return
				}
				inCIE = true
			case len(fields) > 5 && fields[3] == "FDE":
				if !flush() {
					return
				}
				inCIE = false
				offset := hex(fields[0])
				if skips = !programs.Sampled(offset, every); skips {
					continue
				}
				pc := strings.TrimPrefix(fields[5], "pc=")
				start, end, _ := strings.Cut(pc, "..")
				fde = &readelfFDE{section: section, offset: offset, start: hex(start), end: hex(end)}
			case fields[0] == "LOC":
				columns = fields[2:]
			case fde != nil && !inCIE:
				row := readelfRow{loc: hex(fields[0]), cfa: fields[1], columns: columns}
				for _, rule := range fields[2:] {
					if strings.HasPrefix(rule, "(") { // "r5 (rdi)"
						row.rules[len(row.rules)-1] = strings.Trim(rule, "()")
					} else {
						row.rules = append(row.rules, rule)
					}
				}
				if len(row.rules) != len(columns) {
					t.Fatalf("readelf: row %q has not %d columns", lines.Text(), len(columns))
				}
				fde.rows = append(fde.rows, row)
			}
		}
		flush()
	}
}

// i386Names are the DWARF registers of i386 as readelf names them.
var i386Names = []string{"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "eip"}

func registerName(machine elf.Machine, n uint64) string {
	if machine == elf.EM_386 {
		if n < uint64(len(i386Names)) {
			return i386Names[n]
		}
		return fmt.Sprint("r", n)
	}
	return strings.ToLower(regnum.AMD64ToName(n))
}

// compare returns how a row differs from ours, "" if it does not.
func (r *readelfRow) compare(row *Row, machine elf.Machine) string {
	cfa := ""
	switch row.CFA.Kind {
	case CFARegister:
		cfa = fmt.Sprintf("%s%+d", registerName(machine, uint64(row.CFA.Reg)), row.CFA.Offset)
	case CFAExpression:
		cfa = "exp"
		if len(row.CFAExpr()) == 0 {
			return "CFA expression is empty"
		}
	}
	if cfa != r.cfa {
		return fmt.Sprintf("CFA is %s, readelf says %s", cfa, r.cfa)
	}
	shown := map[string]string{}
	for i, name := range r.columns {
		shown[name] = r.rules[i]
	}
	for n, rule := range row.Regs {
		name := registerName(machine, uint64(n))
		if n == int(row.RA) {
			name = "ra"
		}
		got := ""
		switch rule.Kind {
		case Unspecified, Undefined:
			got = "u"
		case SameValue:
			got = "s"
		case Offset:
			got = fmt.Sprintf("c%+d", rule.Offset)
		case ValOffset:
			got = fmt.Sprintf("v%+d", rule.Offset)
		case Register:
			got = registerName(machine, uint64(rule.Reg))
		case Expression:
			got = "exp"
		case ValExpression:
			got = "vexp"
		}
		want, ok := shown[name]
		delete(shown, name)
		if !ok {
			want = "u"
		}
		if got != want {
			return fmt.Sprintf("%s is %s, readelf says %s", name, got, want)
		}
	}
	for n := uint64(NumRegs); n < 128; n++ { // dropped on purpose
		delete(shown, registerName(machine, n))
	}
	for name := range shown {
		return "no register is named " + name
	}
	return ""
}
