/* The shared library of lazy.c. */
#include "chain.h"

void lazy_leaf(void);

static int lazy_implementation(int n)
{
	return n + 1;
}

FRAME int (*lazy_resolver(void))(int)
{
	lazy_leaf();
	KEEP();
	return lazy_implementation;
}

int lazy_bound(int n) __attribute__((ifunc("lazy_resolver")));
