/* Frames whose size is known at run time only: the CFA hangs on rbp. */
#include "chain.h"
#include <alloca.h>

FRAME void alloca_leaf(size_t n)
{
	char *p = (char *)alloca(n);
	memset(p, 1, n);
	ESCAPE(p);
	spin();
	ESCAPE(p);
}

FRAME void alloca_middle(size_t n)
{
	char *p = (char *)alloca(n);
	memset(p, 2, n);
	alloca_leaf(n + 77);
	ESCAPE(p);
}

FRAME void alloca_outer(size_t n)
{
	char *p = (char *)alloca(n);
	memset(p, 3, n);
	alloca_middle(n * 2);
	ESCAPE(p);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main alloca_outer alloca_middle alloca_leaf");
	alloca_outer(100 + (size_t)argc);
	KEEP();
	return 0;
}
