/* A function with a frame pointer on the path that calls another one, and none on the other
 * path, where it takes its page faults. */
#include "start.h"

FRAME unsigned rare(unsigned n)
{
	return n * 3;
}

FRAME unsigned often(unsigned n)
{
	if (n == 1) {
		n = rare(n) + n;
		return rare(n) + n;
	}
	touch_page();
	return n * 1664525u + 1013904223u;
}

int start(long argc, char **argv)
{
	unsigned n = argc + argv[0][0];

	for (int i = 0; i < TIMES; i++) {
		n = often(n) & ~1u;
		KEEP();
	}
	return 0;
}
