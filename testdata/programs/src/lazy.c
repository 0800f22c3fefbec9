/* Lazy binding under way: the first call of lazy_bound ends in the dynamic
 * linker's trampoline, which saves the vector registers and keeps its CFA in
 * rbx; the linker then calls the function's IFUNC resolver, which is our leaf's
 * caller. */
#include "chain.h"

int lazy_bound(int n);

FRAME void lazy_leaf(void)
{
	spin();
}

FRAME void lazy_outer(int n)
{
	n = lazy_bound(n);
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main lazy_outer * lazy_resolver lazy_leaf");
	lazy_outer(argc);
	KEEP();
	return 0;
}
