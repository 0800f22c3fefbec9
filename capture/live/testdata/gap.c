/* It works below pages of its stack that nobody has touched. */
#include "chain.h"

FRAME void gap_spin(char *p)
{
	ESCAPE(p);
	while (chain_again())
		if (chain_page)
			usleep(1000);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main gap_spin");
	gap_spin((char *)__builtin_alloca(24 << 10));
	KEEP();
	return 0;
}
