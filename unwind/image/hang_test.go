package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind/image/fusetest"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// onFUSE shows a copy of a program on a file system whose server can hang.
func onFUSE(t *testing.T) (m *fusetest.Mount, path string) {
	t.Helper()
	program, err := os.ReadFile(programs.Build(t, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	m = fusetest.Show(t, dir)
	return m, filepath.Join(m.Dir, "program")
}

// noProcesses is a /proc without processes: the files that processes 1 and 2 map are opened by their paths here.
// The real process 1 may have another root, where another file is at that path.
func noProcesses(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}

// mostTurns is how many turns questions may wait in all. A file has mostForOne, which are a few turns; if each of a
// hundred questions waited, there would be a hundred.
const mostTurns = 50

// TestFileThatHangs looks up rules of a file whose server does not answer when it is opened or read. Look-ups
// wait no longer than is allowed; the file is reported once; it has rules as soon as it is read.
func TestFileThatHangs(t *testing.T) {
	for _, mode := range []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			server, path := onFUSE(t)
			var failed []string
			waits := 0
			s := New(Config{Proc: noProcesses(t), Hurried: true, Waits: func() { waits++ }, Hooks: Hooks{
				Failed: func(path string, err error) { failed = append(failed, err.Error()) },
			}})
			table := vmas.NewTable("")
			ask := func(pid uint32) (*Image, rule.Rule) {
				m := table.Space(pid).Find(0x401000)
				im := s.Lookup(pid, m)
				return im, im.Rule(m, 0x401000+0x80)
			}
			for i, path := range []string{path, libc(t)} {
				table.Comm(uint32(i+1), uint32(i+1), []byte("test"), true)
				table.Mmap(uint32(i+1), vmas.Map{Addr: 0x400000, Len: 1 << 20, Prot: vmas.ProtExec,
					Name: []byte(path), ID: identity(t, path)})
			}
			server.Be(t, mode)
			waits = 0
			s.Open(1, table.Space(1).Find(0x401000))
			for range 100 {
				if _, r := ask(1); r != rule.Unreadable {
					t.Fatalf("%v of a file that was not read", r)
				}
			}
			if waits > mostTurns {
				t.Errorf("100 questions waited %d times", waits)
			}
			if len(failed) != 1 || !strings.Contains(failed[0], path+": not read within 30ms") {
				t.Errorf("%q", failed)
			}
			lane.Eventually(t, "another file", func() bool { _, r := ask(2); return r != rule.Unreadable })
			server.Be(t, fusetest.Answer)
			lane.Eventually(t, "rules of the file that is there", func() bool {
				im, r := ask(1)
				return im.Opened() && r != rule.Unreadable
			})
		})
	}
}

// TestFilesAheadOfAWait waits for a file that hangs: files that are mapped meanwhile are opened before that
// wait is over, and those that are known are left alone.
func TestFilesAheadOfAWait(t *testing.T) {
	server, path := onFUSE(t)
	table := vmas.NewTable("")
	at := func(pid uint32) *vmas.Mapping { return table.Space(pid).Find(0x401000) }
	var s *Store
	looks, openAt := 0, 0
	s = New(Config{Proc: noProcesses(t), Hurried: true, Waits: func() {
		looks++
		s.Ahead(1, at(1))
		s.Ahead(2, at(2))
		if o, ok := at(2).File.Image.(*opening); ok && openAt == 0 && lane.Soon(o.isDone) {
			openAt = looks
		}
	}})
	for i, path := range []string{path, libc(t)} {
		table.Comm(uint32(i+1), uint32(i+1), []byte("test"), true)
		table.Mmap(uint32(i+1), vmas.Map{Addr: 0x400000, Len: 1 << 20, Prot: vmas.ProtExec,
			Name: []byte(path), ID: identity(t, path)})
	}
	server.Be(t, fusetest.HangOpen)
	s.Open(1, at(1))
	hanging := at(1).File.Image
	if im := s.Lookup(1, at(1)); im == nil || im.err != errLate || at(1).File.Image != hanging {
		t.Fatalf("%v of a file that hangs", im)
	}
	if openAt == 0 || openAt == looks || looks < int(mostForOne/shortLived)/2 {
		t.Errorf("the other file was open at look %d of %d", openAt, looks)
	}
	server.Be(t, fusetest.Answer)
	if im := s.Lookup(2, at(2)); im == nil || !im.Opened() {
		t.Errorf("the other file has no image: %v", im)
	}
}

// TestDebugFileThatComesLate looks up rules while the debug file cannot be read: they come from the code
// until the file is read, and from its CFI afterwards.
func TestDebugFileThatComesLate(t *testing.T) {
	whole, stripped, debug := splitProgram(t, "none", "")
	files, proc := t.TempDir(), t.TempDir()
	content, err := os.ReadFile(debug)
	if err == nil {
		err = os.WriteFile(filepath.Join(files, "prog.debug"), content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, proc, "/opt/bin/prog", stripped)
	server := fusetest.Show(t, files)
	at := filepath.Join(proc, "1/root/opt/bin/.debug")
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(server.Dir, at, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	server.Be(t, fusetest.HangRead)

	waits := 0
	s := New(Config{Proc: proc, Hurried: true, Waits: func() { waits++ }})
	m := mapProgram(t)
	im := s.Lookup(1, m)
	if err := im.Parse(); err != nil {
		t.Fatal(err)
	}
	var pcs []uint64
	for fde := range openDebugFrame(t, whole).FDEs() {
		for row := range fde.Rows() {
			off, _ := im.offset(row.Start)
			pcs = append(pcs, m.Start+off)
		}
	}
	waits = 0
	for _, pc := range pcs {
		if r := im.Rule(m, pc); r.Kind() < rule.GuessSP || r.Kind() > rule.Uncovered {
			t.Errorf("%#x: %v without the debug file", pc, r)
		}
	}
	if waits > mostTurns {
		t.Errorf("%d rules waited %d times", len(pcs), waits)
	}
	server.Be(t, fusetest.Answer)
	lane.Eventually(t, "the debug file", func() bool { s.Walks(1); return im.debug.cfi != nil })
	for _, pc := range pcs {
		if r := im.Rule(m, pc); r.Kind() >= rule.GuessSP {
			t.Errorf("%#x: %v with the debug file", pc, r)
		}
	}
}

// TestDebugFileOf700MB looks up rules of a program with a debug link, whose debug file is another one, as
// only its CRC shows.
func TestDebugFileOf700MB(t *testing.T) {
	_, stripped, debug := splitProgram(t, "none", "")
	proc := t.TempDir()
	put(t, proc, "/opt/bin/prog", stripped)
	put(t, proc, "/opt/bin/prog.debug", debug)
	large := filepath.Join(proc, "1/root/opt/bin/prog.debug")
	if err := os.Truncate(large, 700<<20); err != nil {
		t.Skip("skipped for want of sparse files: ", err)
	}
	var failed []string
	waits := 0
	s := New(Config{Proc: proc, Hurried: true, Waits: func() { waits++ }, Hooks: Hooks{
		Failed: func(_ string, err error) { failed = append(failed, err.Error()) },
	}})
	m := mapProgram(t)
	im := s.Lookup(1, m)
	for pc := m.Start; pc < m.Start+0x3000; pc += 16 {
		im.Rule(m, pc)
	}
	if waits > mostTurns {
		t.Errorf("it waited %d times", waits)
	}
	if err := os.Truncate(large, 1<<20); err != nil { // which ends it
		t.Fatal(err)
	}
	lane.Eventually(t, "the end of the debug file", func() bool { s.Walks(1); return im.debug.seeking == nil })
	if len(failed) == 0 || !strings.Contains(failed[len(failed)-1], "CRC") {
		t.Errorf("%q", failed)
	}
}
