package explore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	proto "github.com/google/pprof/profile"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

const (
	large    = "int a_large_file;\n"
	ordinary = "int ordinary;\n"
)

// namingProfile returns a profile of an image in which each of the files is named by a function of its own:
// f0, f1, …
func namingProfile(image string, files ...string) *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: filepath.Base(image), Path: image}},
		Events: []profile.Event{{Name: "cycles"}},
	})
	for i, file := range files {
		name := fmt.Sprintf("f%d", i)
		f := p.Frame(profile.Frame{
			Name: name, Symbol: name, Known: true, PC: 0x1000 + 16*uint64(i), File: file, Line: 1,
		})
		p.Add(profile.Thread{PID: 1, TID: 1, Comm: "tool"}, 0, 1, f)
	}
	return p.Profile
}

// pages are the pages and downloads of pprof.
var pages = []string{
	"/ui/source?f=.", "/ui/source?f=.&g=files", "/ui/disasm?f=.", "/ui/top", "/ui/flamegraph", "/ui/peek?f=.",
	"/ui/graph", "/ui/download",
}

// put writes a file.
func put(t *testing.T, path, text string) string {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSources has a program that names files of every sort: regular ones are shown, however their paths lead there,
// and of others no byte is read.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	image := put(t, filepath.Join(dir, "tool"), "no program")
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("tree/work.c"), ordinary)
	put(t, in("open.c"), ordinary)
	put(t, in("large.c"), large+strings.Repeat("x", maxSize))
	put(t, in("long.c"), large+strings.Repeat("\n", maxLines))
	for _, err := range []error{
		os.Symlink(in("tree"), in("links")),
		os.Symlink(in("open.c"), in("link.c")),
		syscall.Mkfifo(in("fifo.c"), 0o666),
		os.Symlink(in("fifo.c"), in("fifolink.c")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(in("tree"))
	magic := "/proc/thread-self/root" + in("open.c") // a magic link (symlink(7))
	cases := []struct {
		file, shown, says string
		line              string // "" for none
	}{
		{magic, magic, "cross-device link", ""},
		{in("fifo.c"), in("fifo.c"), "not a regular file", ""},
		{in("fifolink.c"), in("fifolink.c"), "not a regular file", ""},
		{"/dev/zero", "/dev/zero", "not a regular file", ""},
		{dir, dir, "not a regular file", ""},
		{in("large.c"), in("large.c"), "longer than 16 MiB", ""},
		{in("long.c"), in("long.c"), "more than 1048576 lines", ""},
		{in("none.c"), in("none.c"), "", ""},
		{"/proc/self/cwd/../../open.c", "/proc/open.c", "", ""},
		{in("open.c"), in("open.c"), "", "int ordinary;"},
		{in("link.c"), in("link.c"), "", "int ordinary;"},
		{in("links/work.c"), in("links/work.c"), "", "int ordinary;"},
		{in("tree/../open.c"), in("open.c"), "", "int ordinary;"},
		{"work.c", "work.c", "", "int ordinary;"},
		{"./work.c", "work.c", "", "int ordinary;"},
		{"/proc/self/cwd/work.c", "work.c", "", "int ordinary;"},
		{"/x/../proc/self/cwd/./open.c", "open.c", "", "int ordinary;"},
		{"../open.c", "open.c", "", "int ordinary;"},
		{dir[1:] + "/open.c", dir[1:] + "/open.c", "", "int ordinary;"},
	}
	var files []string
	for _, c := range cases {
		files = append(files, c.file)
	}
	s := serve(t, namingProfile(image, files...), Options{})
	for i, c := range cases {
		_, body := s.get(t, fmt.Sprintf("/ui/source?f=^f%d$", i), "")
		_, after, _ := strings.Cut(body, `<p class="filename">`)
		heading, text, ok := strings.Cut(after, "</p>")
		name, why, not := strings.Cut(heading, " (not shown: ")
		if !ok || name != c.shown || not != (c.says != "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: headed %q, not by %s (%s)", c.file, heading, c.shown, c.says)
		}
		if !strings.Contains(text, c.line) || c.line == "" && strings.Contains(text, "int ordinary;") {
			t.Errorf("%s: the source is %s", c.file, excerpt(body))
		}
	}
	for _, page := range pages {
		status, body := s.get(t, page, "")
		if strings.Contains(body, strings.TrimSpace(large)) {
			t.Errorf("%s: a file that is too large is in it", page)
		}
		if random := regexp.MustCompile(`[A-Z2-7]{26}|unspool-source`).FindString(body); random != "" {
			t.Errorf("%s: status %d, it names the copies, %s: %s", page, status, random, excerpt(body))
		}
	}
	told := make(map[string]int)
	for _, text := range s.problems() {
		file, _, _ := strings.Cut(text, ": not shown: ")
		told[file]++
	}
	if told[in("fifo.c")] != 1 || told[in("open.c")]+told[in("none.c")] != 0 {
		t.Errorf("told %v", told)
	}
}

// TestSourceByCode has a program with two inlined functions that have never run and are not in the profile: only the
// machine code leads to their files, of which one is a FIFO.
func TestSourceByCode(t *testing.T) {
	run(t, "objdump", "--version")
	dir := t.TempDir()
	inlined := put(t, filepath.Join(dir, "inlined.c"), ordinary)
	fifo := filepath.Join(dir, "fifo.c")
	source := put(t, filepath.Join(dir, "main.c"), fmt.Sprintf(`volatile unsigned long sink;
volatile unsigned long pages[60][512] __attribute__((aligned(4096)));
#line 1 %q
static inline __attribute__((always_inline)) void never(unsigned long x) { sink = x * 77; }
#line 1 %q
static inline __attribute__((always_inline)) void neither(unsigned long x) { sink = x * 78; }
#line 6 %q
__attribute__((noinline)) void hot(int n)
{
	for (int i = 0; i < n; i++) {
		pages[i][0] += i;
		if (sink == 77777777777777)
			never(i);
		if (sink == 77777777777778)
			neither(i);
	}
}
void _start(void)
{
	hot(60);
	__asm__ volatile("syscall" : : "a"(60), "D"(0)); /* exit */
}
`, inlined, fifo, filepath.Join(dir, "main.c")))
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	// Without a C library, whose functions take objdump long.
	run(t, "gcc", "-g", "-O2", "-static", "-nostdlib", "-o", program, source)
	p := recorded(t, program)
	for _, f := range p.Frames {
		if f.File == inlined || f.File == fifo {
			t.Skip("the profile has the file in a function")
		}
	}
	s := serve(t, p, Options{})
	_, body := s.get(t, "/ui/source?f=^hot$", "")
	for _, text := range []string{"pages[i][0] &#43;= i;", "inlined.c:1<", "int ordinary;", "fifo.c:1<"} {
		if !strings.Contains(body, text) {
			t.Errorf("without %s: %s", text, excerpt(body))
		}
	}
	if !regexp.MustCompile(`: +add `).MatchString(body) {
		t.Errorf("without machine code: %s", excerpt(body))
	}
}

// newTestSources are for offers without a profile.
func newTestSources(t *testing.T) *sources {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	s := newSources(&proto.Profile{}, func(text string) { t.Log(text) })
	t.Cleanup(s.close)
	return s
}

// texts are the contents of all copies.
func (s *sources) texts(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			text, _ := os.ReadFile(path)
			all.Write(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	path := put(t, filepath.Join(dir, "a.c"), ordinary)
	more := put(t, filepath.Join(dir, "b.c"), ordinary)
	t.Run("bytes", func(t *testing.T) {
		s := newTestSources(t)
		s.copied = maxCopied - len(ordinary)
		s.offer(path)
		s.offer(more)
		text, why := s.texts(t), s.refusal(s.masked(more))
		if text != ordinary || !strings.Contains(why, "256 MiB together") {
			t.Errorf("%q, %q", text, why)
		}
	})
	t.Run("files", func(t *testing.T) {
		told := 0
		s := newTestSources(t)
		s.problem = func(string) { told++ }
		for i := range maxSources {
			s.files[fmt.Sprint(i)] = &source{}
		}
		s.offer(path)
		s.offer(more)
		if text := s.texts(t); text != "" || told != 1 {
			t.Errorf("%q, told %d times", text, told)
		}
	})
	t.Run("time", func(t *testing.T) {
		s := newTestSources(t)
		s.slow = maxSlow
		s.offer(path)
		if text, why := s.texts(t), s.refusal(s.masked(path)); text != "" || why == "" {
			t.Errorf("%q, %q", text, why)
		}
	})
	t.Run("after the end", func(t *testing.T) {
		s := newTestSources(t)
		s.close()
		s.offer(path)
		if _, err := os.Stat(s.dir); err == nil {
			t.Error("a copy was made")
		}
	})
}

// TestNames: no name can lead out of the private directory.
func TestNames(t *testing.T) {
	s := newTestSources(t)
	for name, want := range map[string]string{
		"": "", "/": "MASK/", ".": "MASK./", "..": "MASK./",
		"/etc/shadow": "MASK/etc/shadow", "//etc//./shadow": "MASK/etc/shadow",
		"/../../etc/shadow": "MASK/etc/shadow", "../../etc/shadow": "MASK./etc/shadow",
		"a/../../b": "MASK./b", "a/b.c": "MASK./a/b.c",
		"/proc/self/cwd/a.c": "MASK./a.c", "/proc/self/cwd/./a.c": "MASK./a.c",
		"/proc/self/cwd/../a.c":      "MASK/proc/self/a.c",
		s.mask + "/../../etc/shadow": "MASK./etc/shadow",
	} {
		if got := strings.ReplaceAll(s.masked(name), s.mask, "MASK"); got != want {
			t.Errorf("%q: %s, not %s", name, got, want)
		}
	}
}
