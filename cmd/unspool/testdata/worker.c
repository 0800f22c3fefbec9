/* Works for 20 milliseconds in functions called after NAME, whose frames have SIZE
 * bytes. */
#include "chain.h"
#include <time.h>

#define PASTE(a, b) a##b
#define CALLED(name, what) PASTE(name, what)

FRAME void CALLED(NAME, _leaf)(void)
{
	for (int i = 0; i < 20000; i++)
		KEEP();
}

FRAME int CALLED(NAME, _work)(int n)
{
	volatile char b[SIZE];
	struct timespec begin, now;

	b[n] = 1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	do {
		CALLED(NAME, _leaf)();
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 20000000);
	return b[n];
}

int main(int argc, char **argv)
{
	(void)argv;
	return CALLED(NAME, _work)(argc) == 0;
}
