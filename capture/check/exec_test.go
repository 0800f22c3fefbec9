package check

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unspool/capture/symbols"
)

// becomes executes another program, with its code elsewhere, in the middle of a stack that is deeper than a
// copy.
const becomes = `
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef OTHER
__attribute__((used)) static void elsewhere(void) { __asm__ volatile(".skip 12345, 0x90"); }
#endif

static char **args;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noipa)) static void down(int n)
{
	char pad[1000];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	if (n > 0) {
		down(n - 1);
	} else {
		for (long end = now() + 20000000; now() < end;)
			for (volatile int i = 0; i < 100000; i++)
				;
		if (args[1])
			execv(args[1], args + 1);
	}
	__asm__ volatile("" : : "r"(pad) : "memory");
}

int main(int argc, char **argv)
{
	(void)argc;
	args = argv;
	down(15);
	return 0;
}
`

// Of a sample that waits for its stack to be seen again, the process may have executed another program when
// it is judged: its frames are not that program's.
func TestProcessThatExecutesAnotherProgram(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("skipped for want of gcc")
	}
	one := built(t, becomes, "-no-pie", "-static")
	other := built(t, becomes, "-no-pie", "-static", "-DOTHER")
	command := strings.Split(strings.Repeat(one+" "+other+" ", 10), " ")
	path := recorded(t, command[:len(command)-1]...)
	c := New(symbols.New(symbols.Options{}))
	walk(t, path, c)
	all := c.All()
	t.Logf("%d stacks, %+v", c.Stacks, all)
	if c.Stacks < 100 || all.Wrong() > 0 || all.Checked() == 0 {
		t.Errorf("%d stacks, %+v", c.Stacks, c.Result(filepath.Base(path), 0, nil).Wrong)
	}
}
