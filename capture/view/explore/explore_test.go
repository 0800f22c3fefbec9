package explore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// run runs a tool; it skips the test when the tool is missing.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is missing", name)
	}
	cmd := exec.Command(name, args...)
	if name == "perf" {
		cmd = lane.UserPerf(args...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		if name == "perf" && (bytes.Contains(out, []byte("perf_event_paranoid")) ||
			bytes.Contains(out, []byte("not supported"))) {
			t.Skipf("perf may not record here: %s", out)
		}
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// spinSources is where pprof's program is.
const spinSources = "../../format/pprof/testdata"

// publicSources is a copy of spinSources that everybody may read: of a file that has been replaced, no other source is
// shown, and this checkout may lie in somebody's home.
func publicSources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"library.c", "main.cc"} {
		content, err := os.ReadFile(filepath.Join(spinSources, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name), string(content))
	}
	return dir
}

// record records each page that pprof's program, built from its sources in a directory, touches, and loads that.
func record(t *testing.T, from string, options ...string) *profile.Profile {
	t.Helper()
	dir := t.TempDir()
	library, program := filepath.Join(dir, "libspin.so"), filepath.Join(dir, "program")
	flags := append(options, "-g", "-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer")
	run(t, "gcc", append(flags, "-shared", "-fPIC", "-o", library, filepath.Join(from, "library.c"))...)
	run(t, "g++", append(flags, "-o", program, filepath.Join(from, "main.cc"), library)...)
	return recorded(t, program, "2", "60")
}

// recorded records the page faults of a program, and loads that.
func recorded(t *testing.T, command ...string) *profile.Profile {
	t.Helper()
	data := filepath.Join(t.TempDir(), "perf.data")
	run(t, "perf", slices.Concat([]string{"record", "-q", "-g", "-N", "-o", data}, programs.Faults(), []string{"--"},
		command)...)
	r, err := perfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}), profile.Options{Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// site is a profile that is served to one browser.
type site struct {
	url      string // as printed, with the token
	base     string
	client   *http.Client
	problems func() []string
	stop     func()
}

// serve serves p until the test ends, or stop is called.
func serve(t *testing.T, p *profile.Profile, o Options) *site {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	o.Ready = func(url string) { ready <- url }
	var mu sync.Mutex
	var problems []string
	o.Problem = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, text)
	}
	go func() { ended <- Serve(ctx, p, o) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{client: &http.Client{Jar: jar}}
	s.problems = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(problems)
	}
	done := false
	s.stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("did not end")
		}
	}
	t.Cleanup(func() {
		s.stop()
		for _, text := range s.problems() {
			t.Logf("problem: %s", text)
		}
	})
	select {
	case s.url = <-ready:
	case err := <-ended:
		done = true
		t.Fatalf("ended before it began: %v", err)
	}
	s.base, _, _ = strings.Cut(s.url, "/?token=")
	if status, body := s.get(t, strings.TrimPrefix(s.url, s.base), ""); status != 200 {
		t.Fatalf("the URL that was told: status %d: %.300s", status, body)
	}
	return s
}

// cookie is the cookie that the server has set.
func (s *site) cookie(t *testing.T) *http.Cookie {
	t.Helper()
	at, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	all := s.client.Jar.Cookies(at)
	if len(all) != 1 {
		t.Fatalf("cookies %v", all)
	}
	return all[0]
}

// get asks for a page by its path, with the name of another host if one is given.
func (s *site) get(t *testing.T, page, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest("GET", s.base+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := s.client
	if host != "" {
		// A client sends cookies for the host that it asks for, but an attacker can send any.
		req.Host, client = host, http.DefaultClient
		req.AddCookie(s.cookie(t))
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestPages(t *testing.T) {
	settings := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", settings)
	t.Setenv("TMPDIR", t.TempDir())
	p := record(t, spinSources)
	s := serve(t, p, Options{})
	if host, _, _ := net.SplitHostPort(strings.TrimPrefix(s.base, "http://")); host != "localhost" {
		t.Errorf("served at %s", s.base)
	}
	for _, c := range []struct {
		page   string
		status int
		texts  []string
	}{
		{"", 200, []string{"library_spin", "mix\\u003clong unsigned int\\u003e"}},
		{"/ui/", 200, []string{"library_spin"}},
		{"/ui/flamegraph", 200, []string{"library_spin", "hash", "mix\\u003clong unsigned int\\u003e"}},
		{"/ui/top", 200, []string{"library_spin", "mix\\u003clong unsigned int\\u003e"}},
		{"/ui/top?si=samples", 200, []string{"library_spin"}},
		{"/ui/source?f=" + url.QueryEscape("^mix<"), 200, []string{"x ^= x &lt;&lt; 13;", "main.cc"}},
		{"/ui/source?f=library_spin", 200, []string{"sink[i % 60][0] = i;", "library.c"}},
		{"/ui/peek?f=library_spin", 200, []string{"library_spin"}},
		{"/ui/saveconfig?config=x", 403, nil},
		{"/ui/deleteconfig?config=x", 403, nil},
		{"/ui/nothing", 404, nil},
		{"/debug/pprof/", 404, nil},
	} {
		status, body := s.get(t, c.page, "")
		if status != c.status {
			t.Errorf("%s: status %d: %.300s", c.page, status, body)
		}
		for _, text := range c.texts {
			if !strings.Contains(body, text) {
				t.Errorf("%s: without %s: %s", c.page, text, excerpt(body))
			}
		}
	}
	t.Run("machine code", func(t *testing.T) {
		run(t, "objdump", "--version")
		mixed := "/ui/source?f=" + url.QueryEscape("^mix<")
		for page, code := range map[string]string{
			mixed:                       `(?s)x \^= x &lt;&lt; 13; .* 1[0-9a-f]+: +xor [^\n]*main.cc:12<`,
			"/ui/source?f=library_spin": `(?s)sink\[i % 60\]\[0\] = i; .* 1[0-9a-f]+: +mov [^\n]*library.c:5<`,
			"/ui/disasm?f=library_spin": `ROUTINE =+ library_spin\n(?s).* 60 +60 +1[0-9a-f]+: mov`,
		} {
			if _, body := s.get(t, page, ""); !regexp.MustCompile(code).MatchString(body) {
				t.Errorf("%s: without %s: %s", page, code, excerpt(body))
			}
		}
	})
	t.Run("graph", func(t *testing.T) {
		run(t, "dot", "-V")
		if status, body := s.get(t, "/ui/graph", ""); status != 200 || !strings.Contains(body, "<svg") ||
			!strings.Contains(body, "library_spin") {
			t.Errorf("status %d: %s", status, excerpt(body))
		}
	})
	if found, _ := filepath.Glob(filepath.Join(settings, "*")); found != nil {
		t.Errorf("written: %v", found)
	}
	private, _ := filepath.Glob(filepath.Join(os.TempDir(), "unspool-source*"))
	if len(private) != 1 {
		t.Fatalf("copies are in %v", private)
	}
	if info, err := os.Stat(private[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the copies: %v, %v", info.Mode(), err)
	}
	s.stop()
	if c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://")); err == nil {
		c.Close()
		t.Error("served after the end")
	}
	if _, err := os.Stat(private[0]); err == nil {
		t.Error("the copies were left behind")
	}
	if told := s.problems(); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}

// TestWithoutDisassembler lists source by the lines of the profile.
func TestWithoutDisassembler(t *testing.T) {
	p := record(t, spinSources)
	t.Setenv("PATH", t.TempDir())
	s := serve(t, p, Options{})
	if status, body := s.get(t, "/ui/source?f=library_spin", ""); status != 200 ||
		!strings.Contains(body, "sink[i % 60][0] = i;") {
		t.Errorf("status %d: %s", status, excerpt(body))
	}
}

// instruction is an instruction of library_spin, as pages list it.
var instruction = regexp.MustCompile(`1[0-9a-f]+: +mov`)

// TestAnotherBuild shows no machine code of a file that was built again since the recording.
func TestAnotherBuild(t *testing.T) {
	p := record(t, publicSources(t))
	for i := range p.Images {
		if p.Images[i].BuildID != nil {
			p.Images[i].BuildID[0]++
		}
	}
	s := serve(t, p, Options{})
	if status, body := s.get(t, "/ui/source?f=library_spin", ""); status != 200 ||
		!strings.Contains(body, "sink[i % 60][0] = i;") || instruction.MatchString(body) {
		t.Errorf("status %d: %s", status, excerpt(body))
	}
}

// TestReplacedFile shows no machine code of a file that has replaced the one that was mapped, without build
// IDs that show this.
func TestReplacedFile(t *testing.T) {
	p := record(t, publicSources(t), "-Wl,--build-id=none")
	i := slices.IndexFunc(p.Images, func(im profile.Image) bool { return im.Name == "libspin.so" })
	if i < 0 || p.Images[i].BuildID != nil {
		t.Fatalf("image %d: %+v", i, p.Images)
	}
	shown := func() (code bool) {
		s := serve(t, p, Options{})
		defer s.stop()
		status, body := s.get(t, "/ui/source?f=library_spin", "")
		if status != 200 || !strings.Contains(body, "sink[i % 60][0] = i;") {
			t.Errorf("status %d: %s", status, excerpt(body))
		}
		return instruction.MatchString(body)
	}
	if !shown() {
		t.Error("no machine code of the file that was mapped")
	}
	content, err := os.ReadFile(p.Images[i].Path)
	if err != nil {
		t.Fatal(err)
	}
	other := p.Images[i].Path + ".new"
	if err := os.WriteFile(other, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, p.Images[i].Path); err != nil {
		t.Fatal(err)
	}
	if shown() {
		t.Error("the machine code of another file is shown")
	}
}

// TestLongLines has a disassembler that writes more than is read, such as names of megabytes: it must end.
func TestLongLines(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nprintf '  1190:\\tnop\\n'\nexec /usr/bin/head -c 1000000 /dev/zero\n"
	if err := os.WriteFile(filepath.Join(bin, "objdump"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	code, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer code.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	insts, err := disassemble(ctx, code, 0x1190, 0x1200, false, func(int) bool { return true })
	if len(insts) != 1 || !errors.Is(err, bufio.ErrTooLong) || ctx.Err() != nil {
		t.Errorf("%v, %v", insts, err)
	}
}

// TestForeignHosts asks as a browser does for a site whose name resolves to this machine.
func TestForeignHosts(t *testing.T) {
	s := serve(t, small, Options{Addr: "127.0.0.1"})
	for host, want := range map[string]int{"": 200, "localhost:99": 200, "127.0.0.1": 200, "[::1]:1": 200,
		"LOCALHOST": 200, "evil.example": 403, "evil.example:80": 403, "127.0.0.1.evil.example": 403,
		"10.1.2.3": 403} {
		if status, _ := s.get(t, "/ui/top", host); status != want {
			t.Errorf("host %q: %d", host, status)
		}
	}
}

// small is a profile of one sample.
var small = func() *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "tool", Path: "/bin/tool"}},
		Frames: []profile.Frame{{Name: "main", Known: true, PC: 0x1000}},
		Events: []profile.Event{{Name: "cycles"}},
	})
	p.Add(profile.Thread{PID: 1, TID: 1, Comm: "tool"}, 0, 1, 0)
	return p.Profile
}()

func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"": "localhost:0", ":": "localhost:0", ":8080": "localhost:8080", "8080": "localhost:8080",
		"0.0.0.0:80": "0.0.0.0:80",
		"box":        "box:0", "[::1]:7": "[::1]:7", "::1": "[::1]:0", "[::]": "[::]:0", "10.0.0.1": "10.0.0.1:0",
		"99999": "99999:0",
	} {
		if host, port := split(addr); net.JoinHostPort(host, port) != want {
			t.Errorf("%q: host %s, port %s", addr, host, port)
		}
	}
}

func TestErrors(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := l.Addr().String()
	if err := Serve(t.Context(), small, Options{Addr: used}); err == nil ||
		err.Error() != "cannot listen at "+used+": address already in use" {
		t.Errorf("a port in use: %v", err)
	}
	if l, err := Listen(t.Context(), "0.0.0.0:0"); err == nil || !strings.Contains(err.Error(), "only this machine") {
		t.Errorf("all addresses: %v, %v", l, err)
	}
	if err := Serve(t.Context(), &profile.Profile{}, Options{}); err == nil {
		t.Error("an invalid profile was served")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Serve(ended, small, Options{}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// excerpt is the main part of a page.
func excerpt(page string) string {
	if _, content, ok := strings.Cut(page, `<div class="legend">`); ok {
		page = content
	} else if _, content, ok := strings.Cut(page, `<div id="content"`); ok {
		page = content
	}
	page, _, _ = strings.Cut(page, "<script")
	return page[:min(len(page), 3000)]
}
