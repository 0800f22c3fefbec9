/* It has a library in its memory, and another one at the same place, by turns, below a stack that is
 * deeper than a copy. */
#include <dlfcn.h>
#include <string.h>

static void (*enter)(void (*)(void));

static void leaf(void)
{
	static char pages[201 << 12], *next = pages;

	*(volatile char *)next = 1;
	next += 1 << 12;
}

__attribute__((noipa)) static void down(int n, char **libraries)
{
	char pad[1000];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	if (n > 0) {
		down(n - 1, libraries);
	} else {
		for (int i = 0; i < 200; i++) {
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
