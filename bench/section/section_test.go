package section

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.md")
	for _, step := range []struct{ title, text, want string }{
		{"A", "## A\n\none\n", "## A\n\none\n"},
		{"B", "## B\n\ntwo\n", "## A\n\none\n\n## B\n\ntwo\n"},
		{"A", "## A\n\n### part\n\nthree\n", "## A\n\n### part\n\nthree\n\n## B\n\ntwo\n"},
		{"B", "## B\nfour\n", "## A\n\n### part\n\nthree\n\n## B\nfour\n"},
	} {
		if err := Replace(path, step.title, step.text); err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(path)
		if string(b) != step.want {
			t.Errorf("%s: %q, want %q", step.title, b, step.want)
		}
	}
	if got := Of("# x\n## A\n1\n## AB\n2\n", "A"); got != "## A\n1\n" {
		t.Errorf("%q", got)
	}
	if got := Of("# x\n## AB\n2\n", "A"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestTable(t *testing.T) {
	table := NewTable("program", "MB")
	table.Add("python3", "8.4")
	const want = "| program | MB |\n|---|---:|\n| python3 | 8.4 |\n"
	if got := table.String(); got != want {
		t.Errorf("%q instead of %q", got, want)
	}
	table = NewTableOf(2, "kernel", "top", "took")
	table.Add("trixie", "ok", "262 s")
	const two = "| kernel | top | took |\n|---|---|---:|\n| trixie | ok | 262 s |\n"
	if got := table.String(); got != two {
		t.Errorf("%q instead of %q", got, two)
	}
}
