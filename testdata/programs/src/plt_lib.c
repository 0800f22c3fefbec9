/* The shared library of plt.c. */
#include "chain.h"

void plt_back(int n);

FRAME int plt_library_tiny(int n)
{
	return n + 1;
}

/* Not static: a call to it goes through the library's PLT. */
FRAME void plt_library_inner(int n)
{
	plt_back(n);
	ESCAPE(&n);
}

FRAME void plt_library_outer(int n)
{
	plt_library_inner(n);
	ESCAPE(&n);
}
