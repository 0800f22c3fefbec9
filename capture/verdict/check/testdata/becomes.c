/* It executes another program, with its code elsewhere, in the middle of a stack that is deeper than a
 * copy. */
#include <string.h>
#include <unistd.h>

#ifdef OTHER
__attribute__((used)) static void elsewhere(void) { __asm__ volatile(".skip 12345, 0x90"); }
#endif

static char **args;

static char pages[9 << 12];

__attribute__((noipa)) static void down(int n)
{
	char pad[1000];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	if (n > 0) {
		down(n - 1);
	} else {
		for (int i = 0; i < 8; i++)
			*(volatile char *)(pages + ((long)i << 12)) = 1;
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
