package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// othersWords are those of Go's packages and of the parser of options, which nobody should have to read.
var othersWords = regexp.MustCompile(
	`strconv|pflag|parsing|flag|shorthand|invalid argument|invalid value|accepts \d+ arg|unexpected EOF|` +
		`exec: |listen tcp|lookup |unspool: (open|stat|create|read|mkdir) `)

// mistakes is the table of TestMistakes. Its first lines say what its lines are.
const mistakes = "testdata/mistakes.txt"

// TestMistakes types what people mistype: each gives one line in words of our own, nothing on stdout, and the
// exit status of the manual pages.
func TestMistakes(t *testing.T) {
	table, err := os.ReadFile(mistakes)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"text": "this is no recording of anything", "short": "PERF", "empty": "",
		"cut": "PERFILE2\x68\x00\x00\x00\x00\x00\x00\x00",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := entriesOf(t, dir)
	var golden strings.Builder
	here, tried := processState(t), 0
	for block := range strings.SplitSeq(strings.TrimSuffix(string(table), "\n"), "\n\n") {
		line, want, _ := strings.Cut(block, "\n")
		command, inProcess := strings.CutPrefix(line, "$ unspool ")
		started := strings.HasPrefix(line, "% unspool ")
		if inProcess || line == "$ unspool" {
			inProcess = true
		} else if command = strings.TrimPrefix(line, "% unspool "); !started {
			golden.WriteString(block + "\n\n") // a comment
			continue
		}
		tried++
		var e ended
		args := words(t, command)
		if inProcess {
			e = unspoolHere(t, dir, args...)
			if now := processState(t); now != here {
				t.Fatalf("%s: it has changed the process, so it has to be started (%%): %s, was %s", line, now, here)
			}
		} else {
			e = unspool(t, dir, args...)
		}
		got := e.stderr
		if e.status != statusFailure {
			got += fmt.Sprintf("status %d\n", e.status)
		}
		golden.WriteString(line + "\n" + got + "\n")
		e.fails(t, e.status, "")
		if want += "\n"; got != want && !*update {
			t.Errorf("%s\n%swant\n%s", line, got, want)
		}
		if e.status == 0 || e.stdout != "" {
			t.Errorf("%s: status %d, stdout %q", line, e.status, e.stdout)
		}
		if words := othersWords.FindString(e.stderr); words != "" {
			t.Errorf("%s: %q has %q, which is not ours", line, e.stderr, words)
		}
		if now := entriesOf(t, dir); !slices.Equal(now, files) {
			t.Fatalf("%s: it leaves files: %q", line, now)
		}
	}
	if *update {
		text := strings.TrimSuffix(golden.String(), "\n")
		if err := os.WriteFile(filepath.Join(sources, mistakes), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if tried < 200 {
		t.Errorf("only %d commands in %s", tried, mistakes)
	}
}

// sources is the folder of this package.
var sources, _ = os.Getwd()

func entriesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// unspoolHere runs a command line in this process. It must not change the process, and no other test may run
// meanwhile: it has the folder, stdout and stderr.
func unspoolHere(t *testing.T, dir string, args ...string) ended {
	t.Helper()
	if here, _ := os.Getwd(); dir != "" && dir != here {
		t.Chdir(dir) // which a parallel test cannot
	}
	var said [2]bytes.Buffer
	files := [2]**os.File{&os.Stdout, &os.Stderr}
	status := 0
	func() {
		for i, file := range files {
			was := *file
			defer func() {
				(*file).Seek(0, 0)
				said[i].ReadFrom(*file)
				(*file).Close()
				*file = was
			}()
			var err error
			if *file, err = os.CreateTemp(t.TempDir(), "said"); err != nil {
				*file = was
				t.Fatal(err)
			}
			os.Remove((*file).Name())
		}
		status = run(args)
	}()
	return ended{stdout: said[0].String(), stderr: said[1].String(), status: status}
}

// processState is what a process that reads or records gives up or starts.
func processState(t testing.TB) string {
	t.Helper()
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	children, _ := os.ReadFile("/proc/thread-self/children")
	return string(bytes.Join(regexp.MustCompile(`(?m)^(Uid|Gid|CapEff|NoNewPrivs|Seccomp):.*$`).FindAll(status, -1),
		[]byte(" "))) + " children " + string(children)
}

// words splits a command line of the table. In single quotes, there may be spaces.
func words(t testing.TB, line string) (words []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`'([^']*)'|[^ ]+`).FindAllStringSubmatch(line, -1) {
		if strings.HasPrefix(m[0], "'") {
			words = append(words, m[1])
		} else {
			words = append(words, m[0])
		}
	}
	return words
}

// TestRefusals are mistakes of which the system tells, as a user without rights.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := nobodysDirectory(t)
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0o755); err != nil { // root's
		t.Fatal(err)
	}
	privilege := "process 1 is another user's: recording it takes a privilege\n  try: sudo " +
		filepath.Join(dir, "unspool")
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"report", "secret"}, statusFailure, "cannot open secret: permission denied"},
		{[]string{"convert", "secret", "-o", "out"}, statusFailure, "cannot open secret: permission denied"},
		{[]string{"record", "-o", "closed/perf.data", "true"}, statusFailure,
			"cannot create closed/perf.data: permission denied"},
		{[]string{"convert", "plain", "-o", "closed/out"}, statusFailure,
			"plain: not a perf.data file"},
		{[]string{"record", "./plain"}, 126, "./plain: cannot be run: permission denied"},
		{[]string{"record", "closed"}, 127, "closed: command not found"},
		{[]string{"record", "./closed"}, 126, "./closed: cannot be run: is a directory"},
		{[]string{"record", ""}, 127, "the command's name is empty"},
		{[]string{"record", "-p", "1"}, statusFailure, privilege + " record -p 1"},
		{[]string{"top", "-p", "1"}, statusFailure, privilege + " top -p 1"},
		{[]string{"record", "-p", "2147483647"}, statusFailure, "there is no process 2147483647, or it has ended"},
		{[]string{"man", "closed"}, statusFailure, "cannot open closed/unspool.1: permission denied"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			e := asNobody(t, dir, append([]string{c.args[0]}, c.args[1:]...)...)
			if e.status != c.status || e.stdout != "" {
				t.Errorf("status %d, want %d; stdout %q", e.status, c.status, e.stdout)
			}
			if !strings.Contains(e.stderr, "unspool: "+c.says+"\n") || othersWords.MatchString(e.stderr) {
				t.Errorf("%q, want %q", e.stderr, c.says)
			}
		})
	}
}
