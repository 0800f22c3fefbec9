/* clock_gettime all the time: most samples are in the vDSO, below libc. */
#include "chain.h"
#include <time.h>

FRAME void vdso_loop(int n)
{
	struct timespec ts;

	while (chain_again())
		clock_gettime(CLOCK_MONOTONIC, &ts);
	ESCAPE(&ts);
	ESCAPE(&n);
}

FRAME void vdso_outer(int n)
{
	vdso_loop(n);
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main vdso_outer vdso_loop ?");
	vdso_outer(argc);
	KEEP();
	return 0;
}
