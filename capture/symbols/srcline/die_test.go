package srcline

import (
	"debug/dwarf"
	std "debug/elf"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi/elf"
)

// Every DIE has the offset, tag and attributes that debug/dwarf finds, whether it is read or skipped.
func TestDIEs(t *testing.T) {
	for _, command := range [][]string{{"gcc", "-O2", "-gdwarf-2"}, {"gcc", "-O2", "-gdwarf-4"},
		{"gcc", "-O2", "-gdwarf-5"}, {"clang++", "-O2", "-gdwarf-5", "-std=c++17"}} {
		t.Run(command[0]+command[2], func(t *testing.T) {
			source := "nested.c"
			if command[0] == "clang++" {
				source = "measure.cc" // Clang has no functions within functions
			}
			name := filepath.Join(single(source, append(command, "-fPIC", "-shared")...).kept(t), "program")
			f, err := std.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			want, err := f.DWARF()
			if err != nil {
				t.Fatal(err)
			}
			d := open(t, name)
			d.work = workFor(d.main)
			if err := d.indexUnits(d.main); err != nil {
				t.Fatal(err)
			}
			n := 0
			r := want.Reader()
			for _, start := range d.main.starts {
				u, err := d.readUnit(d.main, start)
				if err != nil {
					t.Fatal(err)
				}
				n += compareDIEs(t, d, u, r)
			}
			if e, err := r.Next(); e != nil || err != nil {
				t.Errorf("debug/dwarf goes on: %v %v", e, err)
			}
			if n < 20 {
				t.Errorf("%d DIEs", n)
			}
		})
	}
}

func compareDIEs(t *testing.T, d *Data, u *unit, r *dwarf.Reader) (n int) {
	t.Helper()
	table, err := d.abbrevs(u)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.main.info.keep(u.off, u.end-u.off)
	if err != nil {
		t.Fatal(err)
	}
	for c := (elf.Cursor{Data: b, Pos: int(u.die - u.off)}); c.Pos < len(c.Data); n++ {
		off := u.off + uint64(c.Pos)
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil || e.Tag != 0 && uint64(e.Offset) != off {
			t.Fatalf("a DIE at %#x, debug/dwarf has %+v", off, e)
		}
		code := c.WrappedULEB()
		if code == 0 {
			if e.Tag != 0 {
				t.Fatalf("%#x: the end of children, debug/dwarf has %v", off, e.Tag)
			}
			continue
		}
		a := table.lookup(code)
		if a == nil || a.tag != e.Tag || a.children != e.Children || len(a.specs) != len(e.Field) {
			t.Fatalf("%#x: %+v, debug/dwarf has %+v", off, a, e)
		}
		skipped := c
		sibling := a.skipDIE(&skipped, u)
		for i := range a.specs {
			v := readValue(&c, &a.specs[i], u)
			compareValue(t, d, u, off, v, e.Field[i])
		}
		if skipped.Pos != c.Pos || skipped.Bad {
			t.Fatalf("%#x: read up to %#x, skipped to %#x", off, c.Pos, skipped.Pos)
		}
		if s, ok := e.Val(dwarf.AttrSibling).(dwarf.Offset); ok && uint64(s) != u.off+sibling {
			t.Fatalf("%#x: sibling %#x, debug/dwarf has %#x", off, u.off+sibling, s)
		}
	}
	return n
}

func compareValue(t *testing.T, d *Data, u *unit, die uint64, v value, f dwarf.Field) {
	t.Helper()
	var got any
	switch f.Val.(type) {
	case int64:
		got = int64(v.u)
		if f.Class != dwarf.ClassConstant {
			return // likewise
		}
	case uint64:
		got = v.u
		if v.form.isAddress() {
			got, _ = u.address(v)
		}
		if f.Class != dwarf.ClassConstant && f.Class != dwarf.ClassAddress {
			return // an offset there, maybe an index here
		}
	case dwarf.Offset:
		at, err := d.resolve(u, v)
		if err != nil {
			t.Errorf("%#x: %v", die, err)
		}
		got = dwarf.Offset(at.off)
	case string:
		if v.form == formString {
			v.u -= die - u.off // relative to the unit here, as c is
		}
		s, err := d.string(u, v, die)
		if err != nil {
			t.Errorf("%#x: %v", die, err)
		}
		got = s
	case bool:
		got = v.u != 0
	default:
		return // blocks and signatures
	}
	if got != f.Val {
		t.Errorf("%#x: %v is %v (form %#x), debug/dwarf has %v", die, f.Attr, got, uint16(v.form), f.Val)
	}
}
