package main

import (
	"debug/buildinfo"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// --version names every module of the program, at the version that Go notes in the file.
func TestVersion(t *testing.T) {
	e := unspoolHere(t, "", "--version")
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("%+v", e)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) < 10 {
		t.Fatalf("only %d modules", len(info.Deps))
	}
	want := `^unspool \S+\ncommit (unknown|[0-9a-f]{40})\n` + regexp.QuoteMeta(info.GoVersion) + ` linux/amd64\n`
	for _, m := range info.Deps {
		want += regexp.QuoteMeta(m.Path + " " + m.Version + "\n")
	}
	if !regexp.MustCompile(want + `$`).MatchString(e.stdout) {
		t.Errorf("got\n%s\nwant\n%s", e.stdout, want)
	}
}

func TestBuiltFrom(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.99",
		Settings: []debug.BuildSetting{
			{Key: "GOARCH", Value: "arm64"}, {Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: "abc"},
		},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0"},
			{Path: "example.org/b", Replace: &debug.Module{Path: "example.org/c", Version: "v2.0.0"}},
		},
	}
	rest := "go1.99 linux/arm64\nexample.org/a v1.0.0\nexample.org/c v2.0.0\n"
	if got := builtFrom("", info); got != "commit abc\n"+rest {
		t.Errorf("got %q", got)
	}
	if got := builtFrom("def", info); got != "commit def\n"+rest {
		t.Errorf("got %q", got)
	}
	info.Settings = info.Settings[:2]
	if got := builtFrom("", info); !strings.HasPrefix(got, "commit unknown\n") {
		t.Errorf("got %q", got)
	}
}
