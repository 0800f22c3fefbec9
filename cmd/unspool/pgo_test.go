package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// guided is a Go program that takes a page fault a known number of times in a function which is too large to be inlined
// if it is not known to be called often. The package with it imports nothing, so that it is built alone.
var guided = map[string]string{
	"go.mod": `module guided

go 1.21
`,
	"main.go": `package main

import (
	"syscall"

	"guided/work"
)

func main() {
	const noHugePages = 15 // MADV_NOHUGEPAGE
	pages, err := syscall.Mmap(-1, 0, 80*4096, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic(err)
	}
	_ = syscall.Madvise(pages, noHugePages)
	work.Run(pages)
}
`,
	"work/work.go": `package work

var sum int

func Run(pages []byte) {
	for i := 0; i < len(pages); i += 4096 {
		step(pages, i)
	}
}

func step(pages []byte, i int) {
	pages[i] = 1
	for n := range pages[i:][:16] {
		sum += (n ^ i) * (n | i) * (n & i) * (n + i)
		sum -= (n ^ i) + (n | i) + (n & i) + (n - i)
		sum ^= (n ^ i) - (n | i) - (n & i) - (n * i)
		if sum&1 == 0 {
			sum ^= (n * i) | (n + i)
		} else {
			sum |= (n * i) ^ (n - i)
		}
	}
}
`,
}

// Go's compiler takes our profiles: of programs with DWARF, and of stripped ones.
func TestGoBuildsWithOurProfiles(t *testing.T) {
	t.Parallel()
	lane.Tools(t, "go")
	inlined := regexp.MustCompile(`work\.go:\d+:\d+: inlining call to step`)
	hot := regexp.MustCompile(`inlining for call guided/work\.step .* in function guided/work\.Run`)
	for _, flags := range []string{"", "-s -w"} {
		dir := t.TempDir()
		for name, text := range guided {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		build := func(args ...string) string {
			cmd := exec.Command("go", append([]string{"build"}, args...)...)
			cmd.Dir = dir
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, said)
			}
			return string(said)
		}
		const debug = "-gcflags=-m -d=pgodebug=1"
		build("-ldflags="+flags, "-o", "program", ".")
		if e := unspool(t, dir, slices.Concat([]string{"record", "-q", "-o", "cpu.pb.gz"}, programs.Faults(),
			[]string{"--", "./program"})...); e.status != 0 {
			t.Fatalf("record: status %d\n%s", e.status, e.stderr)
		}
		if said := build("-pgo=off", debug, "./work"); inlined.MatchString(said) {
			t.Errorf("step is inlined without a profile:\n%s", said)
		}
		if said := build("-pgo=cpu.pb.gz", debug, "./work"); !inlined.MatchString(said) || !hot.MatchString(said) {
			t.Errorf("-ldflags=%q: the profile makes no difference:\n%s", flags, said)
		}
	}
}
