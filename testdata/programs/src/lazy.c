/* Lazy binding under way: the first call of lazy_bound ends in the dynamic
 * linker's trampoline, which saves the vector registers and keeps its CFA in
 * rbx; the linker then calls the function's IFUNC resolver, below which our leaf
 * runs. */
#include "chain.h"

int lazy_bound(int n);

static volatile int begun, bound_early;

/* With LD_BIND_NOW or -fno-plt the resolver runs before main does. */
FRAME void lazy_leaf(void)
{
	if (!begun)
		bound_early = 1;
	else
		spin();
}

FRAME void lazy_outer(int n)
{
	n = lazy_bound(n);
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	if (bound_early) {
		fprintf(stderr, "lazy: was bound before main\n");
		return 2;
	}
	begun = 1;
	chain_begin(argc, argv);
	chain_say("main main lazy_outer * lazy_resolving lazy_leaf");
	lazy_outer(argc);
	KEEP();
	return 0;
}
