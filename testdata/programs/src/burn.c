/* Burns argv[1] milliseconds of CPU time (default 5, or as built) in two nested functions,
 * or for ever with 0, or touches N pages in the inner one with "=N", and prints nothing: what a storm of
 * short-lived processes is made of. What its start took, which may be as much, is not counted.
 * With BURN_REST_MS it sleeps for so long after each millisecond of CPU time. */
#include "chain.h"
#include <time.h>

#ifndef BURN_MS
#define BURN_MS 5
#endif

static long spent_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

FRAME unsigned burn_inner(unsigned n)
{
	if (chain_page) {
		chain_again();
		return n;
	}
	for (int i = 0; i < 20000; i++) {
		n = n * 1664525u + 1013904223u;
		KEEP();
	}
	return n;
}

FRAME unsigned burn_outer(long until_us)
{
	unsigned n = 1;
#ifdef BURN_REST_MS
	long rest_us = 0;
#endif
	do {
		n = burn_inner(n);
		KEEP();
#ifdef BURN_REST_MS
		if (spent_us() > rest_us) {
			usleep(BURN_REST_MS * 1000);
			rest_us = spent_us() + 1000;
		}
#endif
	} while (chain_page ? chain_left > 0 : until_us == 0 || spent_us() < until_us);
	return n;
}

int main(int argc, char **argv)
{
	if (argc > 1 && argv[1][0] == '=')
		chain_begin(argc, argv);
	long us = 1000L * chain_arg(argc, argv, 1, BURN_MS);
	unsigned n = burn_outer(us == 0 ? 0 : spent_us() + us);
	ESCAPE(&n);
	return 0;
}
