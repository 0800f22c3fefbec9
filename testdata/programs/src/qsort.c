/* qsort whose comparison sorts again, argv[2] levels deep (default 12): libc's
 * frames and ours alternate. */
#include "chain.h"

FRAME int qsort_compare(const void *a, const void *b);

static int depth;

FRAME void qsort_level(void)
{
	int pair[2] = {2, 1};
	qsort(pair, 2, sizeof pair[0], qsort_compare);
	KEEP();
}

FRAME void qsort_leaf(void)
{
	spin();
}

FRAME int qsort_compare(const void *a, const void *b)
{
	if (--depth > 0)
		qsort_level();
	else
		qsort_leaf();
	KEEP();
	return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv)
{
	depth = chain_arg(argc, argv, 2, 12);
	chain_begin(argc, argv);
	printf("chain main main");
	for (int i = 0; i < depth; i++)
		printf(" qsort_level * qsort_compare");
	printf(" qsort_leaf\n");
	chain_said();
	qsort_level();
	KEEP();
	return 0;
}
