package speedscope

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unspool/capture/format/folded"
	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/testdata/browser"
)

// released is the folder of the web page in speedscope's npm package.
func released(t *testing.T) string {
	folder, err := filepath.Abs("../../../dist/npm/node_modules/speedscope/dist/release")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "index.html")); err != nil {
		t.Skip("speedscope (npm) is missing")
	}
	return folder
}

// open opens a file in speedscope, as its command line does: a script hands the file's bytes to the page.
func open(t *testing.T, name, content string) *browser.Page {
	t.Helper()
	index := filepath.Join(released(t), "index.html")
	dir := t.TempDir()
	script, start := filepath.Join(dir, "profile.js"), filepath.Join(dir, "start.html")
	for file, text := range map[string]string{
		script: load(t, name, content),
		start: fmt.Sprintf("<script>location = %s</script>",
			quote(t, "file://"+index+"#localProfilePath="+strings.TrimPrefix(script, "/"))),
	} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	page := browser.Open(t, start, 300, 200) // small, as what it draws by WebGL in software is not looked at
	page.Until(`[...document.querySelectorAll("div")].some(e => e.textContent.endsWith("Export"))`)
	return page
}

func load(t *testing.T, name, content string) string {
	return fmt.Sprintf("speedscope.loadFileFromBase64(%s, %s)", quote(t, name),
		quote(t, base64.StdEncoding.EncodeToString([]byte(content))))
}

func quote(t *testing.T, s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// understood lets speedscope export the file that it has read.
func understood(t *testing.T, page *browser.Page) *file {
	t.Helper()
	text := browser.Eval[string](page, `new Promise(resolve => {
		URL.createObjectURL = blob => { blob.text().then(resolve); return "#" }
		const all = [...document.querySelectorAll("div")].filter(e => e.textContent.endsWith("Export"))
		all[all.length - 1].click()
	})`)
	for _, c := range page.Complaints() {
		if !strings.Contains(c, "WebGL") { // the driver has much to say about performance
			t.Errorf("speedscope complains: %s", c)
		}
	}
	var f file
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return &f
}

func TestSpeedscope(t *testing.T) {
	p := example()
	want := decode(t, write(t, p.Profile, Options{Name: "a name"}))
	page := open(t, "demo.speedscope.json", write(t, p.Profile, Options{Name: "a name"}))
	have := understood(t, page)
	if len(have.Profiles) != len(want.Profiles) || have.Name != "a name" || have.Active != 0 {
		t.Fatalf("%d of %d profiles, %q, %d", len(have.Profiles), len(want.Profiles), have.Name, have.Active)
	}
	for i := range want.Profiles {
		h, w := &have.Profiles[i], &want.Profiles[i]
		if h.Name != w.Name || h.End != w.End {
			t.Errorf("%q of %d samples, want %q of %d", h.Name, h.End, w.Name, w.End)
		}
		equal(t, have.stacks(t, i), want.stacks(t, i))
	}
}

func TestFoldedInSpeedscope(t *testing.T) {
	p := example()
	var b strings.Builder
	if err := folded.Write(&b, p.Profile, folded.Options{}); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]uint64)
	for line := range strings.Lines(b.String()) {
		i := strings.LastIndexByte(line, ' ')
		var n uint64
		fmt.Sscan(line[i+1:], &n)
		want[strings.ReplaceAll(line[:i], ";", "|\n")+"|"] = n
	}
	have := understood(t, open(t, "demo.folded", b.String()))
	equal(t, have.stacks(t, 0), want)
}

// Whatever names a process has for itself and its functions, speedscope recognizes the format of the files.
func TestHostileNames(t *testing.T) {
	names := []string{
		"f;g", "line\nbreak 7", "esc\x1b[31m", "nul\x00", "bad\xff utf-8", "\u2028", "\u202egnp.exe", "foo 12", " ",
		"", "x 1.5: y",
		"# callgrind format", "fn=main", "events: 1", "</script><script>alert(1)</script>", `"quoted" & 'so' \`,
		"__proto__", "constructor", "{", "[1,", "a 2 3.5: ",
	}
	p := example()
	for i, name := range names {
		at := int32(len(p.Frames))
		p.Frames = append(p.Frames, profile.Frame{Name: name, File: name, Line: -1, Column: int32(i)})
		p.Add(profile.Thread{PID: 1, TID: uint32(i), Comm: name}, 0, 10, at, 0, at)
	}
	t.Run("speedscope", func(t *testing.T) {
		text := write(t, p.Profile, Options{Name: "</script>\x00"})
		want := decode(t, text)
		have := understood(t, open(t, "demo.speedscope.json", text))
		for i := range want.Profiles {
			equal(t, have.stacks(t, i), want.stacks(t, i))
		}
	})
	t.Run("folded", func(t *testing.T) {
		var page *browser.Page
		for i, name := range names { // at the beginning of the file, from which speedscope guesses what the file is
			p := example()
			// With a line that begins with "events:" and one with "fn=", a file would be callgrind's.
			p.Threads[0].Comm, p.Threads[1].Comm, p.Threads[2].Comm = name, "events: 1", name
			p.Frames[0].Name = name
			var b strings.Builder
			if err := folded.Write(&b, p.Profile, folded.Options{}); err != nil {
				t.Fatal(err)
			}
			file := fmt.Sprintf("demo%d.folded", i)
			if page == nil {
				page = open(t, file, b.String())
			} else {
				page.Run(load(t, file, b.String()))
			}
			page.Until(fmt.Sprintf("document.title.startsWith(%q)", file))
			have, lines := understood(t, page), strings.Count(b.String(), "\n")
			if have.Profiles[0].End != p.Count() || len(have.stacks(t, 0)) != lines {
				t.Errorf("%q: %d of %d samples: %v", name, have.Profiles[0].End, p.Count(), have.stacks(t, 0))
			}
		}
	})
}

// The files are valid by the schema that comes with speedscope.
func TestSchema(t *testing.T) {
	dir := t.TempDir()
	args := []string{filepath.Join(released(t), "file-format-schema.json")}
	for name, p := range map[string]*profile.Profile{
		"example": example().Profile,
		"empty":   profiletest.New(&profile.Profile{}).Profile,
	} {
		for i, o := range []Options{{}, {Lines: true, Name: "n"}, {Threads: 1}} {
			file := filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, i))
			if err := os.WriteFile(file, []byte(write(t, p, o)), 0o666); err != nil {
				t.Fatal(err)
			}
			args = append(args, file)
		}
	}
	check, err := browser.Reader("jsonschema", args...)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
