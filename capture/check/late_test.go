package check

import (
	"os/exec"
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

// reloads has a library in its memory, and another one at the same place, by turns, below a stack that is
// deeper than a copy.
const reloads = `
#include <dlfcn.h>
#include <string.h>

static void (*enter)(void (*)(void));

static void leaf(void)
{
	for (volatile int i = 0; i < 1000000; i++)
		;
}

__attribute__((noipa)) static void down(int n, char **libraries)
{
	char pad[1000];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	if (n > 0) {
		down(n - 1, libraries);
	} else {
		for (int i = 0; i < 1000; i++) {
			void *library = dlopen(libraries[i % 2], RTLD_NOW);
			*(void **)&enter = dlsym(library, "enter");
			enter(leaf);
			dlclose(library);
		}
	}
	__asm__ volatile("" : : "r"(pad) : "memory");
}

int main(int argc, char **argv)
{
	(void)argc;
	down(15, argv + 1);
	return 0;
}
`

const library = `
__asm__(".text\n.skip " PAD ", 0x90\n");

void enter(void (*leaf)(void))
{
	volatile char local[64];
	local[0] = 1;
	leaf();
	local[1] = 1;
}
`

// Of a sample that waits for its stack to be seen again, the process may have executed another program when
// it is judged, or mapped another file in the place of a library: its frames are judged by what was there.
func TestSamplesAreJudgedByWhatWasMapped(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("skipped for want of gcc")
	}
	one := built(t, becomes, "-no-pie", "-static")
	other := built(t, becomes, "-no-pie", "-static", "-DOTHER")
	shared := []string{"-shared", "-fPIC"}
	for name, command := range map[string][]string{
		"programs": strings.Fields(strings.Repeat(one+" "+other+" ", 10)),
		"libraries": {built(t, reloads), built(t, library, append(shared, `-DPAD="0x10"`)...),
			built(t, library, append(shared, `-DPAD="0x777"`)...)},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(symbols.New(symbols.Options{}))
			walk(t, recorded(t, command...), c)
			all := c.All()
			t.Logf("%d stacks, %+v", c.Stacks, all)
			if c.Stacks < 100 || all.Wrong() > 0 || all[Unread]*20 > all.Edges() {
				t.Errorf("%d stacks, %+v, wrong %+v", c.Stacks, all, c.Result(name, 0, nil).Wrong)
			}
		})
	}
}
