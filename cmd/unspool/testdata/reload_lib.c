/* A library that calls back out of a frame of SIZE bytes, PAD bytes into its code. */
#include "chain.h"

__asm__(".text\n.skip " PAD ", 0x90\n");

FRAME int library_inner(int (*leaf)(int), int n)
{
	volatile char b[SIZE];

	b[n] = 1;
	int r = leaf(n);
	KEEP();
	return r + b[n];
}

FRAME int library_enter(int (*leaf)(int), int n)
{
	volatile char b[SIZE * 2];

	b[n] = 1;
	int r = library_inner(leaf, n);
	KEEP();
	return r + b[n];
}
