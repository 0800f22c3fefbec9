/* Recursion, argv[2] frames deep (default 500). */
#include "chain.h"

FRAME int deep_leaf(int n)
{
	spin();
	return n;
}

FRAME int deep_frame(int n)
{
	int r = n > 1 ? deep_frame(n - 1) : deep_leaf(n);
	KEEP();
	return r + n;
}

int main(int argc, char **argv)
{
	int depth = chain_arg(argc, argv, 2, 500);

	chain_begin(argc, argv);
	printf("chain main main");
	for (int i = 0; i < depth; i++)
		printf(" deep_frame");
	printf(" deep_leaf\n");
	chain_said();
	int r = deep_frame(depth);
	KEEP();
	return r == -1;
}
