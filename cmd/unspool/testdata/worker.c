/* Is three times at the end of its chain of functions called after NAME, whose frames have SIZE bytes, and touches a
 * page each time. */
#include "chain.h"

#define PASTE(a, b) a##b
#define CALLED(name, what) PASTE(name, what)

FRAME void CALLED(NAME, _leaf)(void)
{
	spin();
}

FRAME int CALLED(NAME, _work)(int n)
{
	volatile char b[SIZE];

	b[n] = 1;
	CALLED(NAME, _leaf)();
	return b[n];
}

int main(int argc, char **argv)
{
	(void)argv;
	chain_count(3);
	return CALLED(NAME, _work)(argc) == 0;
}
