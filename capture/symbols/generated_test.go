package symbols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/programs"
	"unspool/unwind/jit/jitdump"
)

// names are the names at addresses, "" for none.
func (c *codes) at(time uint64, addrs ...uint64) (names []string) {
	g := Generated{dump: *c}
	for _, a := range addrs {
		name := ""
		if i, ok := g.Find(a, time); ok {
			name = g.At(i).Name
		}
		names = append(names, name)
	}
	return names
}

func TestLinesOfPerfMaps(t *testing.T) {
	var c codes
	const text = "2000 10 f\n" +
		"1000 100 old\n" +
		"1040 20 inside\n" +
		"0x3000 0x8 with prefix\r\n" +
		"4000 0 empty\nffffffffffffff00 200 wraps\n\nnonsense\n5000 8\n5000 8 \n6000 g bad\n7000  8 two blanks\n" +
		"1080 100 young\n" +
		"8000 10 first\n8000 10 second\n9000 4 no end"
	if err := c.readPerfMap(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	have := c.at(0, 0x1000, 0x1040, 0x105f, 0x1060, 0x107f, 0x1080, 0x117f, 0x1180, 0x200f, 0x2010, 0x3000,
		0x4000, 0x5000, 0x7000, 0x8000, 0x9003, 0)
	want := []string{"old", "inside", "inside", "old", "old", "young", "young", "", "f", "", "with prefix", "",
		"", "", "second", "no end", ""}
	if !slices.Equal(have, want) {
		t.Errorf("%q\nwant %q", have, want)
	}
}

func TestLongNamesOfPerfMapsAreCut(t *testing.T) {
	var c codes
	if err := c.readPerfMap(strings.NewReader("1000 10 " + strings.Repeat("x", 3*maxName) +
		"\n2000 10 next\n")); err != nil {
		t.Fatal(err)
	}
	if have := c.at(0, 0x1000, 0x2000); len(have[0]) < maxName/2 || len(have[0]) > maxName || have[1] != "next" {
		t.Errorf("%d bytes, then %q", len(have[0]), have[1])
	}
}

// jitdumpFile builds a jitdump.
type jitdumpFile struct{ b []byte }

func newJitdump() *jitdumpFile {
	d := &jitdumpFile{}
	d.words(0x4a695444|1<<32, 40|62<<32, 0|7<<32, 0, 0)
	return d
}

func (d *jitdumpFile) words(w ...uint64) {
	for _, v := range w {
		d.b = binary.LittleEndian.AppendUint64(d.b, v)
	}
}

func (d *jitdumpFile) load(time, addr, size uint64, name string) {
	d.words(uint64(jitdump.CodeLoad)|uint64(16+40+len(name)+1)<<32, time, 7|7<<32, addr, addr, size, 0)
	d.b = append(append(d.b, name...), 0)
}

func (d *jitdumpFile) move(time, from, to, size uint64) {
	d.words(uint64(jitdump.CodeMove)|uint64(16+48)<<32, time, 7|7<<32, to, from, to, size, 0)
}

func TestTimeDecidesWhichCodeOfAJitdumpWasThere(t *testing.T) {
	d := newJitdump()
	d.load(100, 0x1000, 0x100, "a")
	d.load(200, 0x2000, 0x100, "b")
	d.move(300, 0x1000, 0x3000, 0x100)
	d.load(400, 0x1000, 0x40, "c")
	d.load(500, 0x0fc0, 0x80, "d") // over the start of c
	d.move(600, 0x3000, 0x3080, 0x100)
	d.move(700, 0x9000, 0x9100, 0x100) // of code that no record has named
	var c codes
	if err := c.readJitdump(bytes.NewReader(d.b)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		time uint64
		at   []uint64
		name string
	}{
		{150, []uint64{0x1000, 0x10ff}, "a"},
		{250, []uint64{0x1000, 0x10ff}, "a"},
		{250, []uint64{0x2000}, "b"},
		{150, []uint64{0x2000}, "b"}, // it ran before its record was written
		{350, []uint64{0x1000, 0x1080}, ""},
		{350, []uint64{0x3000, 0x30ff}, "a"},
		{450, []uint64{0x1000, 0x103f}, "c"},
		{550, []uint64{0x0fc0, 0x1000, 0x103f}, "d"},
		{650, []uint64{0x3080, 0x30ff, 0x317f}, "a"},
		{650, []uint64{0x3000, 0x307f}, ""},
		{900, []uint64{0x9000, 0x9100, 0x1180, 0}, ""},
	} {
		for i, name := range c.at(want.time, want.at...) {
			if name != want.name {
				t.Errorf("%#x at %d: %q, want %q", want.at[i], want.time, name, want.name)
			}
		}
	}
	// From a file that is cut short, the complete records are read.
	for n := range d.b {
		var c codes
		if err := c.readJitdump(bytes.NewReader(d.b[:n])); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestWhosePerfMapIsBelieved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: files cannot be given away")
	}
	const pid = 1 << 30 // no process has it
	for _, c := range []struct {
		name  string
		owner int
		want  string
	}{
		{"ours", 0, "f"},
		{"another user's", 12345, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, fmt.Sprintf("tmp/perf-%d.map", pid))
			err := errors.Join(os.Mkdir(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("1000 10 f\n"), 0o666),
				os.Chown(path, c.owner, -1))
			if err != nil {
				t.Fatal(err)
			}
			s := New(Options{Root: root})
			g := s.Generated(pid, "", 0)
			if have := g.perfMap.at(0, 0x1000); have[0] != c.want {
				t.Errorf("%q, want %q", have, c.want)
			}
			if p := s.Problems(); (len(p) == 0) != (c.want != "") {
				t.Errorf("problems: %q", p)
			}
		})
	}
}

// A running process may have a root directory, a PID namespace and a user of its own.
func TestPerfMapOfAProcessWithItsOwnRoot(t *testing.T) {
	programs.NeedMounts(t)
	// In the new PID namespace, it is process 1.
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "sh", "-c",
		"mount -t tmpfs none /tmp && echo '1000 10 f' >/tmp/perf-1.map && chown 12345 /tmp/perf-1.map && "+
			"exec "+need(t, "setpriv")+" --reuid 12345 --clear-groups sh -c 'echo; read line'")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Skip("skipped for want of namespaces")
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var pid uint32
	if _, err := fmt.Sscan(string(children), &pid); err != nil {
		t.Fatal(err)
	}
	s := New(Options{})
	g := s.Generated(pid, "", uint64(monotonic()))
	if have := g.perfMap.at(0, 0x1000); have[0] != "f" {
		t.Errorf("%q; problems %q", have, s.Problems())
	}
}

func TestAPIDThatAnotherProcessHasNow(t *testing.T) {
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	if err := os.WriteFile(path, []byte("1000 10 f\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	for _, c := range []struct {
		name    string
		sampled uint64
		written time.Time
		want    string
	}{
		{"the same process", uint64(monotonic()), time.Now(), "f"},
		{"another process, which wrote the map", 1, time.Now().Add(time.Second), ""},
		{"another process, which has no map", 1, time.Now().Add(-24 * time.Hour), "f"},
	} {
		if err := os.Chtimes(path, c.written, c.written); err != nil {
			t.Fatal(err)
		}
		s := New(Options{})
		if have := s.Generated(uint32(os.Getpid()), "", c.sampled).perfMap.at(0, 0x1000); have[0] != c.want {
			t.Errorf("%s: %q, want %q; %q", c.name, have, c.want, s.Problems())
		}
	}
}

func FuzzPerfMap(f *testing.F) {
	f.Add([]byte("1000 10 f\n1008 20 g\n0x1000 1 h"), uint64(0x1004))
	for _, names := range inputs.Lines(8, 16<<10, "../../dist/inputs/perf-*.map") {
		f.Add(names, uint64(0x1000))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte, addr uint64) {
		defer costs.For(len(b)).Check(t)()
		var c codes
		if err := c.readPerfMap(bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		// The last line that contains the address, without those that a later line with the same start replaces.
		last := map[uint64]code{}
		for _, k := range c.list {
			if old := last[k.addr]; k.seq >= old.seq {
				last[k.addr] = k
			}
		}
		want, found := code{}, false
		for _, k := range last {
			if addr-k.addr < uint64(k.size) && (!found || k.seq > want.seq) {
				want, found = k, true
			}
		}
		i, ok := c.find(addr, 0)
		if len(last) <= 256 && (ok != found || ok && c.list[i] != want) {
			t.Errorf("find(%#x) = %d, %v; want %+v, %v", addr, i, ok, want, found)
		}
	}))
}

func FuzzJitdump(f *testing.F) {
	d := newJitdump()
	d.load(100, 0x1000, 0x100, "a")
	d.move(300, 0x1000, 0x3000, 0x100)
	f.Add(d.b, uint64(0x1004), uint64(200))
	for _, dump := range inputs.Files(8, 64<<10, "../../dist/inputs/jit*.dump") {
		f.Add(dump, uint64(0x1000), uint64(1))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte, addr, time uint64) {
		defer costs.For(len(b)).Check(t)()
		var c codes
		_ = c.readJitdump(bytes.NewReader(b))
		if len(c.names) > 64*len(b)+maxName {
			t.Errorf("%d bytes of names", len(c.names))
		}
		g := Generated{dump: c}
		if i, ok := g.Find(addr, time); ok {
			if f := g.At(i); addr < f.Addr || addr-f.Addr >= f.Size {
				t.Errorf("%#x: %+v", addr, f)
			}
		}
	}))
}
