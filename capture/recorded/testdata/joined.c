/* It has a stack of 11 KiB below which another 3 or 13 KiB come and go, with page faults at the end of each. */
#include "chain.h"

static int left;

FRAME void joined_down(int n, void (*then)(void))
{
	char pad[1000];

	memset(pad, 1, sizeof pad);
	ESCAPE(pad);
	if (n == 0)
		then();
	else
		joined_down(n - 1, then);
	ESCAPE(pad);
}

FRAME void joined_spin(void)
{
	for (int i = 0; i < 3 && left; i++)
		left = chain_again();
}

FRAME void joined_work(void)
{
	left = 1;
	while (left)
		joined_down(rand() % 2 ? 2 : 12, joined_spin);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main");
	joined_down(10, joined_work);
	KEEP();
	return 0;
}
