package vmas

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/lane"
)

type fakeProcess struct {
	pid     int
	comm    string
	state   string
	flags   int
	start   int
	threads map[int]string // TID: "comm state"
	maps    string
}

func fakeProc(t testing.TB, ps ...fakeProcess) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range ps {
		writeFakeProc(t, root, p)
	}
	return root
}

func writeFakeProc(t testing.TB, root string, p fakeProcess) {
	t.Helper()
	if p.comm == "" {
		p.comm = "prog"
	}
	if p.state == "" {
		p.state = "S"
	}
	if p.start == 0 {
		p.start = 42
	}
	put := func(tid int, comm, state, maps string) {
		dir := filepath.Join(root, fmt.Sprint(p.pid), "task", fmt.Sprint(tid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (%s) %s 3 5 5 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", tid, comm, state, p.flags,
			p.start)
		for name, text := range map[string]string{"stat": stat, "maps": maps} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	leader := p.maps
	if p.state == "Z" {
		leader = ""
	}
	put(p.pid, p.comm, p.state, leader)
	for tid, s := range p.threads {
		comm, state, _ := strings.Cut(s, " ")
		put(tid, comm, state, p.maps)
	}
}

// seedAll reads all processes.
func seedAll(tab *Table, found func(*Space, error)) error {
	if err := tab.SeedLater(nil); err != nil {
		return err
	}
	tab.SeedSome(func() bool { return true }, found)
	return nil
}

func TestMapsLines(t *testing.T) {
	tests := []struct {
		line string
		want Map
		ok   bool
	}{
		{"7f1c2a400000-7f1c2a426000 r-xp 00026000 fe:01 1048601                    /usr/lib/libc.so.6",
			Map{Addr: 0x7f1c2a400000, Len: 0x26000, Offset: 0x26000, Prot: ProtRead | ProtExec, Flags: FlagPrivate,
				ID: FileID{Major: 0xfe, Minor: 1, Inode: 1048601}, Name: []byte("/usr/lib/libc.so.6")}, true},
		{"1000-2000 rw-s 00000000 00:01 7 /SYSV00000000 (deleted)",
			Map{Addr: 0x1000, Len: 0x1000, Prot: ProtRead | ProtWrite, Flags: FlagShared,
				ID: FileID{Minor: 1, Inode: 7}, Name: []byte("/SYSV00000000 (deleted)")}, true},
		{"1000-2000 ---p 00000000 00:00 0 ",
			Map{Addr: 0x1000, Len: 0x1000, Flags: FlagPrivate, Name: []byte("//anon")}, true},
		{"1000-2000 ---p 00000000 00:00 0",
			Map{Addr: 0x1000, Len: 0x1000, Flags: FlagPrivate, Name: []byte("//anon")}, true},
		{"1000-2000 rwxp 00000000 00:00 0 [anon:v8]",
			Map{Addr: 0x1000, Len: 0x1000, Prot: 7, Flags: FlagPrivate, Name: []byte("//anon")}, true},
		{`1000-2000 r--p 00000000 00:00 5 /two\012lines\012and 3 spaces  `,
			Map{Addr: 0x1000, Len: 0x1000, Prot: ProtRead, Flags: FlagPrivate, ID: FileID{Inode: 5},
				Name: []byte("/two\nlines\nand 3 spaces  ")}, true},
		{"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Map{Addr: 0xffffffffff600000, Len: 0x1000, Prot: ProtExec, Flags: FlagPrivate, Name: []byte("[vsyscall]")},
			true},
		{"", Map{}, false},
		{"2000-1000 r-xp 00000000 00:00 0", Map{}, false},
		{"1000-1000 r-xp 00000000 00:00 0", Map{}, false},
		{"1000 r-xp 00000000 00:00 0", Map{}, false},
		{"1000-2000 r-x", Map{}, false},
		{"1000-2000 r-xp 00000000 00:00", Map{}, false},
		{"1000-2000 r-xp 00000000 00:00 99999999999999999999 /a", Map{}, false},
		{"11111111111111111-2000 r-xp 00000000 00:00 0 /a", Map{}, false},
		{"1000-2000 r-xp 00000000 100000000:00 0 /a", Map{}, false},
		{"1000-2000 r-xp 00000000 00:00 12x /a", Map{}, false},
	}
	for _, tt := range tests {
		var m Map
		ok := parseMapsLine([]byte(tt.line), &m)
		if ok != tt.ok || ok && !reflect.DeepEqual(m, tt.want) {
			t.Errorf("%q: %v %+v", tt.line, ok, m)
		}
	}
}

func TestStatLines(t *testing.T) {
	tests := []struct {
		line string
		want stat
		ok   bool
	}{
		{"1 (a) b) (c) S 3 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0\n",
			stat{comm: "a) b) (c", state: 'S', ppid: 3, flags: 4194560, start: 99}, true},
		{`1 (a\nb\\c) R 3 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99`,
			stat{comm: "a\nb\\c", state: 'R', ppid: 3, start: 99}, true},
		{"1 (kworker/u16:2-events_unbound) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n",
			stat{comm: "kworker/u16:2-e", state: 'I', ppid: 2, flags: 69238880, start: 5}, true},
		{"1 (a) S 3 1 1 0 -1", stat{}, false},
		{"1 )a( S", stat{}, false},
		{"", stat{}, false},
		{"1 (a) S x 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99", stat{}, false},
	}
	for _, tt := range tests {
		var st stat
		ok := parseStat([]byte(tt.line), &st)
		if ok != tt.ok || ok && st != tt.want {
			t.Errorf("%q: %v %+v", tt.line, ok, st)
		}
	}
}

func TestSeedFromFakeProc(t *testing.T) {
	const maps = "1000-2000 r--p 00000000 08:01 7 /bin/prog\n" +
		"2000-5000 r-xp 00001000 08:01 7 /bin/prog\n" +
		"garbage\n" +
		"6000-7000 rw-p 00000000 00:00 0 [heap]\n" +
		"8000-9000 rw-p 00000000 00:00 0 [stack]\n" +
		"a000-b000 r-xp 00000000 00:00 0 [vdso]\n" +
		"b000-c000 r-xp 00000000 08:01 7" // cut
	root := fakeProc(t,
		fakeProcess{pid: 5, maps: maps, threads: map[int]string{6: "io R", 7: "dead Z"}},
		fakeProcess{pid: 8, comm: "leader", state: "Z", maps: maps, threads: map[int]string{9: "left S"}},
		fakeProcess{pid: 10, state: "Z"},
		fakeProcess{pid: 11, comm: "kthread", flags: pfKthread},
	)
	if err := os.MkdirAll(filepath.Join(root, "self"), 0o755); err != nil {
		t.Fatal(err)
	}
	tab := NewTable(root)
	got := map[uint32]string{}
	if err := seedAll(tab, func(s *Space, err error) {
		if err != nil {
			t.Errorf("process %d: %v", s.PID, err)
		}
		got[s.PID] = fmt.Sprintf("%s %d %v %d %v", s.Comm(0), s.PPID, s.Threads(), s.layout.n, s.Kernel())
	}); err != nil {
		t.Fatal(err)
	}
	want := map[uint32]string{
		5:  "prog 3 [{5 prog} {6 io}] 2 false",
		8:  "leader 3 [{9 left}] 2 false",
		11: "kthread 3 [{11 kthread}] 0 true",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found %v\nwant %v", got, want)
	}
	if m := tab.Space(5).Find(0x2100); m == nil || m.Offset != 0x1000 || m.File.Inode != 7 {
		t.Errorf("mapping %+v", m)
	}
	if tab.Refresh(11) {
		t.Error("a kernel thread has mappings")
	}
	for _, pid := range []uint32{10, 99, 0} {
		if _, err := tab.Seed(pid); !errors.Is(err, ErrEnded) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	writeFakeProc(t, root, fakeProcess{pid: 99, maps: maps})
	if _, err := tab.Seed(99); !errors.Is(err, ErrEnded) {
		t.Error("a PID known to have ended is looked for again")
	}
	if tab.Mmap(99, pages(1, 2, 0, "/x")) == nil {
		t.Error("a process that /proc did not have yet takes no record")
	}
	checkTable(t, tab)
}

func TestSweepFindsLostExits(t *testing.T) {
	root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 0 00:00 0 /a\n"})
	tab := NewTable(root)
	tab.Seed(5)
	tab.Mmap(6, pages(1, 2, 0, "/b"))
	if n := tab.Sweep(); n != 0 || tab.Space(6) == nil {
		t.Error("the first sweep drops a process")
	}
	if n := tab.Sweep(); n != 1 || tab.Space(6) != nil || tab.Space(5) == nil {
		t.Errorf("the second sweep drops %d", n)
	}
}

func TestOverfullSpaceIsReadAgain(t *testing.T) {
	root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 0 /a\n"})
	tab := NewTable(root)
	tab.Seed(5)
	for i := range uint64(minLimit) {
		tab.Mmap(5, pages(10+2*i, 11+2*i, 0, "//anon"))
	}
	if got := dump(tab.Space(5)); got != "1-2@0 /a\n" {
		t.Errorf("stale mappings stay: %d", tab.Space(5).layout.n)
	}
	checkTable(t, tab)
}

// TestStaleMappingsAloneAreDropped: when stale mappings are looked for, maps may be ahead of the records. What it shows
// in the place of what is known is not what older samples ran, nor is the part of a mapping that is still there all of
// it.
func TestStaleMappingsAloneAreDropped(t *testing.T) {
	root := fakeProc(t, fakeProcess{pid: 5, maps: "1000-2000 r-xp 00000000 00:00 0 /b\n" +
		"4000-5000 r-xp 00000000 00:00 0 /a\n5000-6000 r--p 00000000 00:00 0 /a\n7000-8000 r-xp 00000000 00:00 0 /c\n"})
	tab := NewTable(root)
	tab.Mmap(5, pages(1, 2, 0, "/a"))
	tab.Mmap(5, pages(4, 6, 8, "/a"))
	for i := range uint64(minLimit - 1) {
		tab.Mmap(5, pages(10+2*i, 11+2*i, 0, "//anon"))
	}
	if got := dump(tab.Space(5)); got != "1-2@0 /a\n4-6@8 /a\n" {
		t.Errorf("kept are %.200s", got)
	}
	checkTable(t, tab)
}

func TestSeedSelf(t *testing.T) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	tab := NewTable("/proc")
	s, err := tab.Seed(uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	pc := reflect.ValueOf(TestSeedSelf).Pointer()
	exe, _ := os.Readlink("/proc/self/exe")
	if m := s.Find(uint64(pc)); m == nil || m.File.Path != exe || m.File.Kind != Regular {
		t.Errorf("this function is in %+v, want %s", m, exe)
	}
	var local int
	_ = local
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 6 || f[1][2] != 'x' {
			continue
		}
		var start, end uint64
		fmt.Sscanf(string(f[0]), "%x-%x", &start, &end)
		if m := s.Find(start); m == nil || m.Start != start || m.End != end || m.File.Name() != string(f[5]) {
			t.Errorf("%s: %+v", line, m)
		}
	}
	if len(s.Threads()) < 2 || s.PPID != uint32(os.Getppid()) {
		t.Errorf("threads %v, parent %d", s.Threads(), s.PPID)
	}
}

const leaderExits = `
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/prctl.h>
static void *run(void *arg) {
	prctl(PR_SET_NAME, "survivor");
	puts("ready"); fflush(stdout);
	pause();
	return arg;
}
int main(void) {
	pthread_t t;
	pthread_create(&t, NULL, run, NULL);
	pthread_exit(NULL);
}
`

func TestSeedProcessWhoseLeaderExited(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "leader.c"), filepath.Join(dir, "leader")
	if err := os.WriteFile(src, []byte(leaderExits), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-O1", "-pthread", "-o", bin, src).CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	cmd := exec.Command(bin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	bufio.NewReader(out).ReadString('\n')
	tab := NewTable("/proc")
	pid := uint32(cmd.Process.Pid)
	awaitZombie(t, tab, pid)
	s, err := tab.Seed(pid)
	if err != nil {
		t.Fatal(err)
	}
	ts := s.Threads()
	if len(ts) != 1 || ts[0].Comm != "survivor" {
		t.Errorf("threads %v", ts)
	}
	found := false
	for m := range s.Mappings() {
		found = found || m.File.Path == bin
	}
	if !found {
		t.Errorf("the program is not among the mappings:\n%s", dump(s))
	}
	tab.Mmap(pid, pages(1, 2, 0, "/x"))
	tab.Space(pid).changed()
	tab.Refresh(pid)
	if tab.Space(pid).Find(1<<12) == nil {
		t.Error("re-reading through a dead leader loses mappings")
	}
	tab.Exit(pid, ts[0].TID)
	if tab.Space(pid) != nil {
		t.Error("the space outlives its last thread")
	}
}

// awaitZombie waits until the first thread of a process has exited.
func awaitZombie(t *testing.T, tab *Table, pid uint32) {
	t.Helper()
	lane.Eventually(t, "the end of a process's first thread", func() bool {
		var st stat
		return tab.proc.stat(pid, pid, &st) == nil && st.state == 'Z'
	})
}

// A process that ends without being waited for has a stat line and no memory.
func TestSeedZombie(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer cmd.Wait()
	tab := NewTable("/proc")
	pid := uint32(cmd.Process.Pid)
	awaitZombie(t, tab, pid)
	if _, err := tab.Seed(pid); !errors.Is(err, ErrEnded) || tab.Space(pid) != nil {
		t.Errorf("a zombie is seeded: %v", err)
	}
}

func TestSeedAllOfThisMachine(t *testing.T) {
	tab := NewTable("/proc")
	begin := time.Now()
	kernel, failed := 0, 0
	if err := seedAll(tab, func(s *Space, err error) {
		if s.Kernel() {
			kernel++
		} else if err != nil {
			failed++
		}
	}); err != nil {
		t.Skip(err)
	}
	t.Logf("%d processes, %d kernel threads, %d unreadable, %d files, %v",
		tab.Len(), kernel, failed, len(tab.files.byKey), time.Since(begin))
	if tab.Space(uint32(os.Getpid())) == nil {
		t.Error("this process is not among them")
	}
	checkTable(t, tab)
}

func TestLongLinesAndBigMaps(t *testing.T) {
	var b strings.Builder
	b.WriteString("1000-2000 r-xp 00000000 00:00 0 /" + strings.Repeat("x", 3*mapsBuffer) + "\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "%x-%x r-xp 00000000 00:00 0 /some/path/of/a/library%d.so\n", 0x10000+i*0x2000,
			0x11000+i*0x2000, i%10)
	}
	tab := NewTable(fakeProc(t, fakeProcess{pid: 5, maps: b.String()}))
	s, err := tab.Seed(5)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.layout.n; n != 5000 || s.Find(0x1000) != nil {
		t.Errorf("%d mappings", n)
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte("7f1c2a400000-7f1c2a426000 r-xp 00026000 fe:01 1048601        /usr/lib/libc.so.6\n" +
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"))
	f.Add([]byte("1000-2000 rwxp 00000000 00:00 0 \n1800-3000 ---p 00000000 00:00 0 /a\\012b\n"))
	f.Add([]byte("1 (a\\nb) S 3 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99"))
	for _, text := range inputs.Lines(40, 8<<10, "/proc/[0-9]*/maps", "/proc/[0-9]*/stat") {
		f.Add(text)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, text []byte) {
		defer costs.For(len(text)).Check(t)()
		tab := NewTable("")
		for line := range bytes.Lines(bytes.Clone(text)) {
			var m Map
			if parseMapsLine(line, &m) {
				if m.Len == 0 || m.Addr+m.Len < m.Addr || len(m.Name) == 0 {
					t.Fatalf("%q yields %+v", line, m)
				}
				tab.Mmap(1, m)
			}
		}
		checkTable(t, tab)
		var st stat
		if parseStat(bytes.Clone(text), &st) && len(st.comm) > taskCommLen {
			t.Fatalf("comm %q", st.comm)
		}
	}))
}

func BenchmarkSeedAll(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("no /proc")
	}
	var n int
	b.ReportAllocs()
	for b.Loop() {
		tab := NewTable("/proc")
		if err := seedAll(tab, nil); err != nil {
			b.Skip(err)
		}
		n = tab.Len()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/process")
}
