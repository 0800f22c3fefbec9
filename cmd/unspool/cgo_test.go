package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unspool/testdata/programs"
)

// cgoCallback is a program whose Go code is called by C, which Go has called: by a goroutine, whose stack has
// Go's part of that, and by a thread of C's.
const cgoCallback = `package main

/*
#include <pthread.h>

extern int called(int);
static volatile int sink;

__attribute__((noinline)) static int inner(int n) { sink += called(n); return n + 1; }
__attribute__((noinline)) static int outer(int n) { sink += inner(n + 1); return n; }
static void *thread(void *arg) { sink += outer(2); return arg; }
static int start(int n)
{
	pthread_t t;
	pthread_create(&t, 0, thread, 0);
	sink += outer(n);
	return pthread_join(t, 0);
}
*/
import "C"

import (
	"sync/atomic"
	"syscall"
)

var (
	pages = make([]byte, 0)
	next  atomic.Int64
	done  bool
)

//export called
func called(n C.int) C.int { return C.int(work(int(n))) }

//go:noinline
func work(n int) int {
	for range 10 {
		pages[next.Add(1)*4096] = 1
	}
	return n
}

//go:noinline
func enter() { C.start(3); done = true }

func main() {
	var err error
	pages, err = syscall.Mmap(-1, 0, 21*4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil || syscall.Madvise(pages, syscall.MADV_NOHUGEPAGE) != nil {
		panic(err)
	}
	enter()
}
`

// TestGoThatCHasCalled records it. The frames of C are on a stack that is not in the copy: no stack may lack
// them and be called complete.
func TestGoThatCHasCalled(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "go", "gcc")
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": cgoCallback, "go.mod": "module program\n\ngo 1.22\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-o", program)
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("no cgo here: %v\n%s", err, out)
	}
	r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "8192", "--", program})...)
	own := ownProfile(t, r.path)
	var called, withC, rest, goes int
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		switch {
		case len(stack) == 0 || stack[0] != "main.work":
			rest += int(s.Count)
		case slices.Contains(stack, "outer"):
			withC += int(s.Count)
		default:
			called += int(s.Count)
			if slices.Contains(stack, "main.enter") {
				goes += int(s.Count)
			}
		}
	}
	complete := int(r.stats.Unwind.Complete)
	t.Logf("%d stacks of Go code that C has called, %d of them with the Go code that called C, %d with the "+
		"C code; %d others; ended: %v", called+withC, goes, withC, rest, r.stats.Unwind.Ended)
	if called+withC != 20 || goes != 10 {
		t.Errorf("%d and %d samples, of 20 and 10", called+withC, goes)
	}
	if n := int(r.stats.Unwind.Ended["not_copied"]); n < called {
		t.Errorf("%d stacks end as C's part is not in the copy, of %d that lack it", n, called)
	}
	if complete > rest+withC {
		t.Errorf("%d stacks are said to be complete, %d lack what C has called", complete, called)
	}
}
