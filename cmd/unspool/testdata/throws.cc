/* Throws exceptions, all the time or as many as it is told to (=N): main, outer, left, deep seven times, thrower. left has a destructor to run,
 * and outer handles the exception. */
#include "chain.h"

static volatile long calls;

struct guard {
	FRAME ~guard() { calls = calls + 1; }
};

FRAME void thrower(int n)
{
	throw n;
}

FRAME void deep(int n)
{
	if (n > 0)
		deep(n - 1);
	else
		thrower(n);
	KEEP();
}

FRAME void left(int n)
{
	guard g;

	deep(n);
	KEEP();
}

FRAME void outer(int n)
{
	try {
		left(n);
	} catch (int) {
		calls = calls + 1;
	}
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_busy = 1;
	while (chain_again())
		outer(6);
	return 0;
}
