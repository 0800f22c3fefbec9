package symbols

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/symbols/debuginfod"
	"unspool/capture/symbols/srcline"
	"unspool/testdata/lane"
	"unspool/vmas"
)

// serveFolder runs Debian's debuginfod for the ELF files below a folder, and returns when it serves
// those of all build IDs.
func serveFolder(t *testing.T, folder string, paths ...string) (url string) {
	t.Helper()
	server := need(t, "debuginfod")
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	var said bytes.Buffer
	cmd := exec.Command(server, "-F", "-d", ":memory:", "-p", fmt.Sprint(port), "-t", "1", folder)
	// No variable names a server that it would ask in turn.
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", &said)
		}
	})
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	for _, path := range paths {
		lane.Eventually(t, path+" to be served", func() bool {
			resp, err := http.Get(url + "/buildid/" + path)
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	return url
}

func fetching(t *testing.T, url string) *debuginfod.Client {
	return debuginfod.New(t.Context(), debuginfod.Options{Servers: []string{url}, Cache: t.TempDir(),
		Timeout: time.Minute})
}

// functionsAt are the functions that debugging information knows at the addresses of functions, the
// inlined ones, too.
func functionsAt(im *Image, table *Table) map[string]bool {
	var addrs []uint64
	for i := range table.Len() {
		f := table.At(i)
		for a := f.Addr; a < f.Addr+f.Size; a++ {
			addrs = append(addrs, a)
		}
	}
	slices.Sort(addrs)
	found := map[string]bool{}
	im.Lines(slices.Compact(addrs), func(_ int, frames []srcline.Frame) {
		for _, f := range frames {
			if f.File != "" && f.Line > 0 {
				found[f.Func] = true
			}
		}
	})
	return found
}

func TestNamesAndLinesFromDebuginfod(t *testing.T) {
	served, here := t.TempDir(), t.TempDir()
	build := func(name string, id []byte) *Table {
		program := compile(t, "p.c", program, "-O1", "-g", fmt.Sprintf("-Wl,--build-id=0x%x", id))
		return strip(t, program, filepath.Join(here, name), filepath.Join(served, name+".debug"), false)
	}
	id1, id2 := bytes.Repeat([]byte{0x11}, 20), bytes.Repeat([]byte{0x22}, 20)
	id3 := bytes.Repeat([]byte{0x33}, 8) // as short as lld's; perf.data appends zeros
	one, two, three := build("one", id1), build("two", id2), build("three", id3)
	// This machine has no file of the second and third program.
	for _, name := range []string{"two", "three"} {
		if err := os.Rename(filepath.Join(here, name), filepath.Join(served, name)); err != nil {
			t.Fatal(err)
		}
	}
	var paths []string
	for _, id := range [][]byte{id1, id2, id3} {
		paths = append(paths, fmt.Sprintf("%x/debuginfo", id))
	}
	url := serveFolder(t, served, append(paths, fmt.Sprintf("%x/executable", id2),
		fmt.Sprintf("%x/executable", id3))...)
	for _, c := range []struct {
		name string
		id   []byte
		want *Table
	}{
		{"one", id1, one},
		{"one", nil, one},
		{"two", id2, two},
		{"three", append(id3, make([]byte, 12)...), three},
	} {
		path := filepath.Join(here, c.name)
		s := New(Options{Debuginfod: fetching(t, url), Cache: t.TempDir()})
		im := s.Image(path, c.id, vmas.FileID{})
		sameFunctions(t, im, c.want)
		if found := functionsAt(im, c.want); !found["compare"] || !found["work"] || !found["main"] {
			t.Errorf("%s: lines of %v", c.name, found)
		}
		if p := s.Problems(); len(p) > 0 {
			t.Errorf("%s: problems: %q", c.name, p)
		}
		im = New(Options{Cache: t.TempDir()}).Image(path, c.id, vmas.FileID{})
		if table := im.Table(); table != nil {
			if _, ok := find(table, "compare"); ok {
				t.Errorf("%s: has names without debuginfod", c.name)
			}
		}
		if found := functionsAt(im, c.want); len(found) > 0 {
			t.Errorf("%s: lines without debuginfod, of %v", c.name, found)
		}
	}
}

func TestAlternateFilesFromDebuginfod(t *testing.T) {
	need(t, "dwz")
	dir, served := t.TempDir(), t.TempDir()
	program := compile(t, "p.c", program, "-O1", "-g", withID)
	table := readFile(t, program)
	shell := exec.Command("sh", "-e", "-c", `
		objcopy --decompress-debug-sections "$0" program
		cp program other
		dwz -m "$1/alternate" -M ../nowhere/alternate program other
		readelf -SW program | grep -q debugaltlink
		readelf -nW "$1/alternate" | sed -n 's/.*Build ID: //p'`, program, served)
	shell.Dir = dir
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("dwz: %v", err)
	}
	url := serveFolder(t, served, strings.TrimSpace(string(out))+"/debuginfo")
	s := New(Options{Debuginfod: fetching(t, url), Cache: t.TempDir()})
	if found := functionsAt(s.Image(filepath.Join(dir, "program"), nil, vmas.FileID{}),
		table); !found["compare"] || len(s.Problems()) > 0 {
		t.Errorf("lines of %v, problems %q", found, s.Problems())
	}
	s = New(Options{Cache: t.TempDir()})
	if _ = functionsAt(s.Image(filepath.Join(dir, "program"), nil, vmas.FileID{}),
		table); len(s.Problems()) == 0 {
		t.Error("no problem without debuginfod")
	}
}

func TestWhatIsWrongWithDebuginfodIsAProblem(t *testing.T) {
	root, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "debug")
	path := filepath.Join(root, "program")
	want := strip(t, compile(t, "p.c", program, "-O1", "-g", withID), path, elsewhere, false)
	other := compile(t, "p.c", "int main(void) { return 1; }\n", "-Wl,--build-id=0x99")
	down := httptest.NewServer(nil)
	down.Close()
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		words   string
	}{
		{"another build", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, other) },
			"build ID 99"},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "not used"},
		{"nothing", http.NotFound, ""},
		{"down", nil, "connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, asked := down.URL, map[string]int{}
			if c.handler != nil {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked[r.URL.Path]++
					c.handler(w, r)
				}))
				defer server.Close()
				url = server.URL
			}
			s := New(Options{Debuginfod: fetching(t, url), Cache: t.TempDir()})
			im := s.Image(path, id, vmas.FileID{})
			if _, ok := find(im.Table(), "compare"); ok {
				t.Error("named")
			}
			if found := functionsAt(im, want); len(found) > 0 {
				t.Errorf("lines of %v", found)
			}
			for path, n := range asked {
				if n > 1 {
					t.Errorf("%s: %d requests", path, n)
				}
			}
			text := strings.Join(s.Problems(), "\n")
			if c.words == "" && text != "" || !strings.Contains(text, c.words) || strings.Count(text, "\n") > 0 {
				t.Errorf("problems: %s", text)
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := New(Options{Debuginfod: debuginfod.New(ctx,
			debuginfod.Options{Servers: []string{down.URL}, Cache: t.TempDir()}), Cache: t.TempDir()})
		for _, name := range []string{path, "/nonexistent/program"} {
			_ = s.Image(name, id, vmas.FileID{}).Table()
		}
		if p := s.Problems(); len(p) != 2 || !strings.Contains(p[0], "interrupted") ||
			!strings.Contains(p[1], "/nonexistent/program") {
			t.Errorf("problems: %q", p)
		}
	})
}

// TestRecordingAsksNobody checks that no package that records imports one that may use the network.
func TestRecordingAsksNobody(t *testing.T) {
	deps := output(t, "go", "list", "-deps", "unspool/capture/live", "unspool/capture/recorded")
	if slices.Contains(strings.Fields(deps), "unspool/capture/symbols/debuginfod") {
		t.Error("recording depends on debuginfod")
	}
}
