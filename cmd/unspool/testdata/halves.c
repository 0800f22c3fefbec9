/* Two threads, "stirs" and "asks", that each work for argv[1] milliseconds of CPU time: one in functions that are
 * inlined into one another, one in system calls. */
#include "chain.h"
#include <pthread.h>
#include <time.h>

static long long limit_ns;

static int over(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec > limit_ns;
}

static inline __attribute__((always_inline)) unsigned halves_turn(unsigned n)
{
	for (int i = 0; i < 20000; i++) {
		n = n * 1664525u + 1013904223u;
		KEEP();
	}
	return n;
}

static inline __attribute__((always_inline)) unsigned halves_stir(unsigned n)
{
	n = halves_turn(n);
	KEEP();
	return n + 1;
}

FRAME unsigned halves_mix(unsigned n)
{
	n = halves_stir(n);
	KEEP();
	return n;
}

static void *stirs(void *unused)
{
	unsigned n = 1;

	(void)unused;
	pthread_setname_np(pthread_self(), "stirs");
	while (!over()) {
		n = halves_mix(n);
		KEEP();
	}
	ESCAPE(&n);
	return NULL;
}

FRAME void halves_ask(void)
{
	for (int i = 0; i < 100; i++) {
		getppid();
		KEEP();
	}
}

static void *asks(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "asks");
	while (!over()) {
		halves_ask();
		KEEP();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t first, second;

	limit_ns = 1000000LL * chain_arg(argc, argv, 1, 5);
	if (pthread_create(&first, NULL, stirs, NULL) || pthread_create(&second, NULL, asks, NULL))
		return 1;
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	return 0;
}
