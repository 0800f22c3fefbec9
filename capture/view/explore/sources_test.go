package explore

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	proto "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
)

const (
	secret   = "correct horse battery staple\n"
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

// executable is the content of a program that every system has.
func executable(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	return string(content)
}

// pages are the pages and downloads of pprof.
var pages = []string{
	"/ui/source?f=.", "/ui/source?f=.&g=files", "/ui/disasm?f=.", "/ui/top", "/ui/flamegraph", "/ui/peek?f=.",
	"/ui/graph", "/ui/download",
}

// TestSourceOfOthers has another user's program that names files, and a server that may read all of them.
func TestSourceOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	dir := public(t)
	image := put(t, filepath.Join(dir, "tool"), executable(t), 0o755)
	theirs := filepath.Join(dir, "theirs")
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, in("secret.c"), secret, 0o600)
	put(t, in("shut/secret.c"), secret, 0o644)
	put(t, in("theirs/own.c"), ordinary, 0o600)
	put(t, in("theirs/tree/work.c"), ordinary, 0o644)
	put(t, in("open.c"), ordinary, 0o644)
	put(t, in("large.c"), secret+strings.Repeat("x", maxSize), 0o644)
	put(t, in("long.c"), secret+strings.Repeat("\n", maxLines), 0o644)
	for _, err := range []error{
		os.Chmod(in("shut"), 0o700),
		os.Symlink(in("secret.c"), in("theirs/link.c")),
		os.Symlink(in("shut"), in("theirs/links")),
		os.Link(in("secret.c"), in("theirs/hard.c")),
		os.Symlink(in("open.c"), in("theirs/fine.c")),
		syscall.Mkfifo(in("theirs/fifo.c"), 0o666),
		os.Chown(image, stranger, stranger), os.Chown(theirs, stranger, stranger),
		os.Chown(in("theirs/own.c"), stranger, stranger),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(in("theirs/tree"))
	magic := "/proc/thread-self/root" + in("secret.c") // a magic link (symlink(7))
	refused := "uid 65531, which owns " + image + ", may not read it"
	cases := []struct {
		file, shown, says string
		line              string // "" for none
	}{
		{in("secret.c"), in("secret.c"), refused, ""},
		{in("theirs/link.c"), in("theirs/link.c"), refused, ""},
		{in("theirs/hard.c"), in("theirs/hard.c"), refused, ""},
		{in("shut/secret.c"), in("shut/secret.c"), refused, ""},
		{in("theirs/links/secret.c"), in("theirs/links/secret.c"), refused, ""},
		{in("theirs") + "/../secret.c", in("secret.c"), refused, ""},
		{"/proc/self/cwd/../../secret.c", "/proc/secret.c", "", ""},
		{"/proc/self/cwd/secret.c", "secret.c", refused, ""},
		{"/x/../proc/self/cwd/./shut/secret.c", "shut/secret.c", refused, ""},
		{magic, magic, "cross-device link", ""},
		{"../../shut/secret.c", "shut/secret.c", refused, ""},
		{"secret.c", "secret.c", refused, ""},
		{"./secret.c", "secret.c", refused, ""},
		{dir[1:] + "/secret.c", dir[1:] + "/secret.c", refused, ""},
		{in("theirs/fifo.c"), in("theirs/fifo.c"), "not a regular file", ""},
		{"/dev/zero", "/dev/zero", "not a regular file", ""},
		{dir, dir, "not a regular file", ""},
		{in("large.c"), in("large.c"), "longer than 16 MiB", ""},
		{in("long.c"), in("long.c"), "more than 1048576 lines", ""},
		{in("none.c"), in("none.c"), "", ""},
		{in("open.c"), in("open.c"), "", "int ordinary;"},
		{in("theirs/own.c"), in("theirs/own.c"), "", "int ordinary;"},
		{in("theirs/fine.c"), in("theirs/fine.c"), "", "int ordinary;"},
		{in("theirs/tree/../own.c"), in("theirs/own.c"), "", "int ordinary;"},
		{"work.c", "work.c", "", "int ordinary;"},
		{"/proc/self/cwd/work.c", "work.c", "", "int ordinary;"},
		{"../open.c", "open.c", "", "int ordinary;"},
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
		if strings.Contains(body, strings.TrimSpace(secret)) {
			t.Errorf("%s: the secret is in it", page)
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
	if told[in("secret.c")] != 1 || told[in("open.c")]+told[in("none.c")] != 0 {
		t.Errorf("told %v", told)
	}
}

// TestSecretInCode has a program with an inlined function that has never run and is not in the profile:
// only the machine code leads to the file.
func TestSecretInCode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	run(t, "objdump", "--version")
	dir := public(t)
	hidden := put(t, filepath.Join(dir, "secret.c"), secret, 0o600)
	source := put(t, filepath.Join(dir, "main.c"), fmt.Sprintf(`volatile unsigned long sink;
volatile unsigned long pages[60][512] __attribute__((aligned(4096)));
#line 1 %q
static inline __attribute__((always_inline)) void never(unsigned long x) { sink = x * 77; }
#line 5 %q
__attribute__((noinline)) void hot(int n)
{
	for (int i = 0; i < n; i++) {
		pages[i][0] += i;
		if (sink == 77777777777777)
			never(i);
	}
}
void _start(void)
{
	hot(60);
	__asm__ volatile("syscall" : : "a"(60), "D"(0)); /* exit */
}
`, hidden, filepath.Join(dir, "main.c")), 0o644)
	program := filepath.Join(dir, "shut/program")
	if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	// Without a C library, whose functions take objdump long.
	run(t, "gcc", "-g", "-O2", "-static", "-nostdlib", "-o", program, source)
	if err := os.Chown(program, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	p := recorded(t, program)
	for _, f := range p.Frames {
		if f.File == hidden {
			t.Skip("the profile has the file in a function")
		}
	}
	added := regexp.MustCompile(`: +add `)
	s := serve(t, p, Options{})
	_, body := s.get(t, "/ui/source?f=^hot$", "")
	const looped = "pages[i][0] &#43;= i;"
	if !strings.Contains(body, looped) || !strings.Contains(body, "secret.c:1<") || !added.MatchString(body) {
		t.Errorf("without source, or machine code of both files: %s", excerpt(body))
	}
	for _, page := range pages {
		if _, body := s.get(t, page, ""); strings.Contains(body, strings.TrimSpace(secret)) {
			t.Errorf("%s: the secret is in it", page)
		}
	}
	s.stop()

	// The owner of the program may not reach it here.
	if err := os.Chmod(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	s = serve(t, p, Options{})
	_, body = s.get(t, "/ui/source?f=^hot$", "")
	if !strings.Contains(body, looped) || added.MatchString(body) {
		t.Errorf("without source, or with machine code: %s", excerpt(body))
	}
	if status, body := s.get(t, "/ui/disasm?f=^hot$", ""); status == 200 {
		t.Errorf("disassembled: %s", excerpt(body))
	}
	want := program + ": no machine code: uid 65531, which owns " + program + ", may not read it"
	if told := s.problems(); len(told) == 0 || told[0] != want {
		t.Errorf("told %q", told)
	}
}

// newTestSources are for offers without a profile.
func newTestSources(t *testing.T) *sources {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	s := newSources(&proto.Profile{}, nil, func(text string) { t.Log(text) })
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

// TestAlternatingLink has a link that leads by turns to a file that its owner may read and to one that the
// owner may not read.
func TestAlternatingLink(t *testing.T) {
	dir := public(t)
	open := put(t, filepath.Join(dir, "open.c"), ordinary, 0o644)
	shut := put(t, filepath.Join(dir, "secret.c"), secret, 0o600)
	link, next := filepath.Join(dir, "link.c"), filepath.Join(dir, "next")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for turn := 0; ; turn++ {
			select {
			case <-stop:
				return
			default:
				os.Symlink([]string{shut, open}[turn%2], next)
				os.Rename(next, link)
			}
		}
	}()
	defer func() {
		close(stop)
		<-ended
	}()
	s := newTestSources(t)
	shown, not := 0, 0
	for range 3000 {
		s.files = make(map[string]*source)
		s.offer(link, []owner{{stranger, true, "tool"}})
		if text := s.texts(t); strings.Contains(text, secret) {
			t.Fatalf("copied: %q", text)
		} else if text == ordinary {
			shown++
		} else {
			not++
		}
		os.RemoveAll(filepath.Join(s.dir, s.mask))
	}
	if shown == 0 || not == 0 {
		t.Errorf("shown %d times, not shown %d times: this shows nothing", shown, not)
	}
}

// TestAlternatingDirectory has a file that everybody may read in a directory that not everybody may search,
// which changes places with another directory.
func TestAlternatingDirectory(t *testing.T) {
	dir := public(t)
	put(t, filepath.Join(dir, "d/a.c"), ordinary, 0o644)
	put(t, filepath.Join(dir, "e/a.c"), secret, 0o644)
	if err := os.Chmod(filepath.Join(dir, "e"), 0o700); err != nil {
		t.Fatal(err)
	}
	d, e := filepath.Join(dir, "d"), filepath.Join(dir, "e")
	stop, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, d, unix.AT_FDCWD, e, unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() {
		close(stop)
		<-ended
	}()
	shown, not := 0, 0
	for range 5000 {
		text, _, err := readFor([]owner{{stranger, true, "tool"}}, filepath.Join(dir, "d/a.c"), maxSize)
		switch {
		case err == nil && string(text) == ordinary:
			shown++
		case err == nil:
			t.Fatalf("read: %q", text)
		default:
			not++
		}
	}
	if shown == 0 || not == 0 {
		t.Errorf("shown %d times, not shown %d times: this shows nothing", shown, not)
	}
}

// TestSeveralImages: a file that several images name is shown only if the owners of all of them may read it.
func TestSeveralImages(t *testing.T) {
	path := put(t, filepath.Join(public(t), "a.c"), ordinary, 0o600)
	own, other := owner{uint32(os.Geteuid()), true, "own"}, owner{stranger, true, "other"}
	unknown := owner{image: "[jit]"}
	for _, c := range []struct {
		by   [][]owner
		want string
	}{
		{[][]owner{{own}}, ordinary},
		{[][]owner{{own}, {own}}, ordinary},
		{[][]owner{{other}}, ""},
		{[][]owner{{own}, {other}}, ""},
		{[][]owner{{other}, {own}}, ""},
		{[][]owner{{own, other}}, ""},
		{[][]owner{{own}, {unknown}, {own}}, ""},
	} {
		s := newTestSources(t)
		for _, by := range c.by {
			s.offer(path, by)
		}
		if text := s.texts(t); text != c.want {
			t.Errorf("%v: %q", c.by, text)
		}
		if why := s.refusal(s.masked(path)); (why == "") != (c.want != "") {
			t.Errorf("%v: %q", c.by, why)
		}
	}
}

func TestLimits(t *testing.T) {
	dir := public(t)
	own := []owner{{uint32(os.Geteuid()), true, "own"}}
	path := put(t, filepath.Join(dir, "a.c"), ordinary, 0o644)
	more := put(t, filepath.Join(dir, "b.c"), ordinary, 0o644)
	t.Run("bytes", func(t *testing.T) {
		s := newTestSources(t)
		s.copied = maxCopied - len(ordinary)
		s.offer(path, own)
		s.offer(more, own)
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
		s.offer(path, own)
		s.offer(more, own)
		if text := s.texts(t); text != "" || told != 1 {
			t.Errorf("%q, told %d times", text, told)
		}
	})
	t.Run("time", func(t *testing.T) {
		s := newTestSources(t)
		s.slow = maxSlow
		s.offer(path, own)
		if text, why := s.texts(t), s.refusal(s.masked(path)); text != "" || why == "" {
			t.Errorf("%q, %q", text, why)
		}
	})
	t.Run("after the end", func(t *testing.T) {
		s := newTestSources(t)
		s.close()
		s.offer(path, own)
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

// TestOwners has images that are copies, or reached through a link.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	dir := public(t)
	tool := filepath.Join(dir, "bin/tool")
	put(t, tool, executable(t), 0o755)
	if err := os.Chown(tool, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("bin", filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	linked, symfs := filepath.Join(dir, "linked/tool"), filepath.Join(dir, "symfs")
	put(t, symfs+tool, executable(t), 0o755)
	named := filepath.Join(dir, "bin/named (deleted)")
	put(t, symfs+named, executable(t), 0o755)
	put(t, named, executable(t), 0o755)
	if err := os.Chown(named, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	put(t, symfs+"/only/there", executable(t), 0o755)
	for _, c := range []struct {
		name, path, root string
		want             []owner
	}{
		{"at its path", tool, "", []owner{{stranger, true, tool}}},
		{"a copy of root's", tool, symfs, []owner{{0, true, tool}, {stranger, true, tool}}},
		{"a copy of a stranger's, named as if removed", named, symfs, []owner{{0, true, named}, {stranger, true, named}}},
		{"a copy of what is gone", "/only/there", symfs, []owner{{0, true, "/only/there"}}},
		{"behind a link", linked, "", []owner{{image: linked}}},
		{"gone", "/only/there", "", []owner{{image: "/only/there"}}},
		{"no file", "[jit]", "", []owner{{image: "[jit]"}}},
	} {
		images := []profile.Image{{Path: c.path}}
		o := newObjects(t.Context(), &profile.Profile{Images: images}, nil, symbols.Options{Root: c.root, Cache: dir}, nil)
		if got := o.owners(&proto.Mapping{File: c.path}); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}
