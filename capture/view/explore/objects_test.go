package explore

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/format/pprof"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
	"unspool/testdata/programs"
	"unspool/vmas"
	"unspool/vmas/process"
)

// threeFunctions is a program, and a profile with a sample in each of its functions first, second and third, as if
// it had been recorded. They are far from each other.
func threeFunctions(t *testing.T, name string) (path string, p *profile.Profile) {
	t.Helper()
	text := fmt.Sprintf(`
int %[1]s_first(int x) { return x * 3; }
int %[1]s_second(int x) { return x + 3; }
int %[1]s_third(int x) { return x - 3; }
int main(int argc, char **argv) { return %[1]s_first(%[1]s_second(%[1]s_third(argc))); }
`, name)
	path = programs.BuildText(t, name+".c", text, "gcc", "-g", "-O1", "-fno-inline", "-falign-functions=4096")
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	im := symbols.New(symbols.Options{}).Image(path, nil, vmas.FileID{})
	if im.Table() == nil {
		t.Fatal("no symbols")
	}
	stacks := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: filepath.Base(path), Path: path, Code: im.Code()}},
		Events: []profile.Event{{Name: "cycles"}},
	})
	for _, s := range syms {
		if strings.HasPrefix(s.Name, name+"_") {
			frame := stacks.Frame(profile.Frame{Name: s.Name, Symbol: s.Name, Known: true, Addr: s.Value, PC: s.Value})
			stacks.Add(profile.Thread{PID: 1, TID: 1, Comm: name}, 0, 1, frame)
		}
	}
	return path, stacks.Profile
}

// pagesOf makes the pages of a profile, and calls then with them.
func pagesOf(t *testing.T, p *profile.Profile, o Options, then func(map[string]http.Handler)) {
	t.Helper()
	converted, err := pprof.Convert(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := makePages(t.Context(), p, converted, "localhost:1", o, func(pages map[string]http.Handler) error {
		then(pages)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// ask asks for a page.
func ask(ctx context.Context, page http.Handler, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", url, nil))
	return w
}

// TestPageThatNobodyWaitsFor: of the code of three functions that a page is to show, no more is disassembled once
// whoever has asked for it has gone; another page is made then.
func TestPageThatNobodyWaitsFor(t *testing.T) {
	_, p := threeFunctions(t, "gone")
	for _, path := range []string{"/disasm", "/source"} {
		t.Run(path[1:], func(t *testing.T) {
			dir, began, on := t.TempDir(), programs.FIFO(t), programs.FIFO(t)
			count := filepath.Join(dir, "count")
			script := fmt.Sprintf("#!/bin/sh\necho . >>'%s'\necho . >'%s'\nread line <'%s'\n", count, began.Name(), on.Name())
			if err := os.WriteFile(filepath.Join(dir, "objdump"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir)
			disassembled := func() int {
				b, _ := os.ReadFile(count)
				return bytes.Count(b, []byte("\n"))
			}
			pagesOf(t, p, Options{}, func(pages map[string]http.Handler) {
				ctx, leave := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					ask(ctx, pages[path], path+"?f=gone_")
					close(ended)
				}()
				if _, err := began.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				waited := make(chan struct{})
				go func() {
					ask(gone, pages[path], path+"?f=gone_")
					close(waited)
				}()
				leave()
				fmt.Fprint(on, strings.Repeat("\n", 10)) // those that are not ended go on
				<-ended
				<-waited
				if n := disassembled(); n != 1 {
					t.Errorf("%d functions were disassembled when nobody waited for the second one", n)
				}
				ask(t.Context(), pages["/disasm"], "/disasm?f=gone_first")
				if n := disassembled(); n != 2 {
					t.Errorf("%d functions were disassembled, the last one for another page", n)
				}
			})
		})
	}
}

// TestSourceThatNobodyWaitsFor: source files are copied for who waits for a page, and those that were not are for the
// next page.
func TestSourceThatNobodyWaitsFor(t *testing.T) {
	_, p := threeFunctions(t, "unread")
	source := filepath.Join(t.TempDir(), "x.c")
	if err := os.WriteFile(source, []byte("what stands there\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range p.Frames {
		p.Frames[i].File, p.Frames[i].Line = source, 1
	}
	converted, err := pprof.Convert(p)
	if err != nil {
		t.Fatal(err)
	}
	problem := func(text string) { t.Log(text) }
	s := newSources(converted, problem)
	defer s.close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	page := s.page(http.NotFoundHandler())
	for _, c := range []struct {
		ctx  context.Context
		want int
	}{{gone, 0}, {t.Context(), 1}} {
		if ask(c.ctx, page, "/source"); len(s.files) != c.want {
			t.Errorf("%d files were looked at, want %d", len(s.files), c.want)
		}
	}
}

// faulty opens files, of one of which one read is a fault of this program.
type faulty struct {
	process.Here
	of   string
	left int // reads before it
}

func (f *faulty) OpenWithin(root, path string) (*process.OpenFile, error) {
	file, err := f.Here.OpenWithin(root, path)
	if err == nil && path == f.of {
		file.By = func(file *os.File, p []byte, off int64) (int, error) {
			if f.left--; f.left == -1 {
				panic("planted")
			}
			return file.ReadAt(p, off)
		}
	}
	return file, err
}

// TestFaultsCostTheFile plants a panic in place of reads of a file. The pages have what they can have of it, another
// file is shown whole, and it is said.
func TestFaultsCostTheFile(t *testing.T) {
	if disassembler() == "" {
		t.Skip("objdump is missing")
	}
	path, p := threeFunctions(t, "bad")
	_, other := threeFunctions(t, "good")
	both := profiletest.New(&profile.Profile{Images: append(p.Images, other.Images...), Events: p.Events})
	for _, f := range append(p.Frames, other.Frames...) {
		if strings.HasPrefix(f.Name, "good") {
			f.Image = 1
		}
		both.Add(profile.Thread{PID: 1, TID: 1, Comm: "both"}, 0, 1, both.Frame(f))
	}
	planted := 0
	for left, step := 0, 1; ; left, step = left+step, step+1 {
		var told []string
		opener := &faulty{of: path, left: left}
		o := Options{Symbols: symbols.Options{Opener: opener}, Problem: func(text string) { told = append(told, text) }}
		pagesOf(t, both.Profile, o, func(pages map[string]http.Handler) {
			for _, page := range []string{"/disasm", "/source"} {
				w := ask(t.Context(), pages[page], page+"?f=bad_|good_")
				body := w.Body.String()
				if w.Code != 200 || !strings.Contains(body, "good_third") || strings.Count(body, "ret") < 3 {
					t.Errorf("at read %d, %s: status %d: %s", left, page, w.Code, excerpt(body))
				}
			}
		})
		if opener.left >= 0 {
			break // there is no such read
		}
		planted++
		if !slices.ContainsFunc(told, func(text string) bool {
			return strings.HasPrefix(text, path+": ") && strings.HasSuffix(text, "planted")
		}) {
			t.Errorf("at read %d: told %q", left, told)
		}
	}
	if planted < 5 {
		t.Errorf("panics were planted in %d reads", planted)
	}
}

// TestFaultsBesideTheFile: also what explore itself does with a file costs that file.
func TestFaultsBesideTheFile(t *testing.T) {
	var told []string
	problem := func(text string) { told = append(told, text) }
	o := newObjects(t.Context(), &profile.Profile{}, nil, symbols.Options{}, problem)
	o.opened["/bin/x"] = &object{of: o, image: symbols.New(symbols.Options{}).Image("/bin/x", nil, vmas.FileID{})}
	o.opened["/bin/x"].image.Path = "/nonexistent" // it has no table, which is not expected of an opened one
	if insts, err := o.Disasm("/bin/x", 1, 2, false); insts != nil || err != nil || len(told) != 1 ||
		!strings.HasPrefix(told[0], "/bin/x: machine code and lines are missing") {
		t.Errorf("%v, %v, told %q", insts, err, told)
	}
	if found, err := o.opened["/bin/x"].Symbols(nil, 1); found != nil || err == nil || len(told) != 2 {
		t.Errorf("%v, %v, told %q", found, err, told)
	}
}

// TestFaultOfAPage: a fault elsewhere costs the page, and is told in one line.
func TestFaultOfAPage(t *testing.T) {
	l, err := Listen(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan string, 10), make(chan error)
	page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			panic("planted")
		}
	})
	go func() { ended <- listen(ctx, l, messages{Options{Problem: func(text string) { told <- text }}}, page) }()
	at := "http://" + l.Addr().String()
	if resp, err := http.Get(at + "/bad"); err == nil {
		resp.Body.Close()
		t.Error("the page was served")
	}
	if text := <-told; !strings.HasSuffix(text, "planted") || strings.Contains(text, "goroutine") {
		t.Errorf("told %q", text)
	}
	resp, err := http.Get(at + "/good")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPageThatTakesMuchMemory: how long functions are, and how many, is for their file to say.
func TestPageThatTakesMuchMemory(t *testing.T) {
	_, p := threeFunctions(t, "large")
	dir := t.TempDir()
	script := "#!/bin/sh\nwhile echo '  1190:\tnop'; do :; done\n"
	if err := os.WriteFile(filepath.Join(dir, "objdump"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	var told []string
	pages := func(p *profile.Profile, left int) string {
		converted, err := pprof.Convert(p)
		if err != nil {
			t.Fatal(err)
		}
		told = nil
		o := newObjects(t.Context(), p, converted.Mapping, symbols.Options{}, func(text string) { told = append(told, text) })
		m := converted.Mapping[0]
		ob, err := o.Open(m.File, m.Start, m.Limit, m.Offset, "")
		if err != nil {
			t.Fatal(err)
		}
		o.left = left
		found, err := ob.Symbols(nil, 0)
		insts, err2 := o.Disasm(m.File, 1, 2, false)
		more, err3 := o.Disasm(m.File, 1, 2, false)
		return fmt.Sprint(len(found) > 10, err, len(insts), err2, len(more), err3, len(told))
	}
	if got := pages(p, 3*sizeOfFunction); got != "false <nil> 0 <nil> 0 <nil> 1" {
		t.Errorf("without memory for all functions: %s, told %q", got, told)
	}
	if got := pages(p, 1<<16); got != "true <nil> 1 <nil> 0 <nil> 1" {
		t.Errorf("without memory for all instructions: %s, told %q", got, told)
	}
}
