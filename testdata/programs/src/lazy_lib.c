/* The shared library of lazy.c. */
#include "chain.h"

void lazy_leaf(void);

static int lazy_implementation(int n)
{
	return n + 1;
}

FRAME void lazy_resolving(void)
{
	lazy_leaf();
	KEEP();
}

/* Has the symbol lazy_bound as well, so the chain counts it as other code. */
FRAME int (*lazy_resolver(void))(int)
{
	lazy_resolving();
	KEEP();
	return lazy_implementation;
}

int lazy_bound(int n) __attribute__((ifunc("lazy_resolver")));
