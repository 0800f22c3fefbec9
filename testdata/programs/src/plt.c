/* The executable calls a shared library through the PLT, the library calls back
 * through its own, and the leaf calls a tiny library function over and over, so
 * that some samples are in PLT entries. */
#include "chain.h"

void plt_library_outer(int n);
int plt_library_tiny(int n);

FRAME void plt_leaf(int n)
{
	while (chain_again())
		n = plt_library_tiny(n);
	ESCAPE(&n);
}

FRAME void plt_back(int n)
{
	plt_leaf(n);
	ESCAPE(&n);
}

FRAME void plt_outer(int n)
{
	plt_library_outer(n);
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main plt_outer plt_library_outer plt_library_inner plt_back plt_leaf ?");
	plt_outer(argc);
	KEEP();
	return 0;
}
