/* A function with a frame pointer on the path that calls another one, and none on the other
 * path, where it spends its time. */
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
	for (int i = 0; i < 100000; i++) {
		n = n * 1664525u + 1013904223u;
		KEEP();
	}
	return n;
}

int start(long argc, char **argv)
{
	unsigned n = argc + argv[0][0];

	for (;;) {
		n = often(n);
		KEEP();
	}
}
