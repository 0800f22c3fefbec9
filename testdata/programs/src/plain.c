/* Three calls, nothing else. */
#include "chain.h"

FRAME int plain_leaf(int n)
{
	spin();
	return n + 1;
}

FRAME int plain_middle(int n)
{
	int r = plain_leaf(n * 3);
	KEEP();
	return r + n;
}

FRAME int plain_outer(int n)
{
	int r = plain_middle(n + 7);
	KEEP();
	return r * n;
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main plain_outer plain_middle plain_leaf");
	int r = plain_outer(argc);
	KEEP();
	return r == -1;
}
