/* It has a stack of 40 KiB above a function that takes a page fault a millisecond, as often as chain.h has it, or
 * works for a while. Its argument says which frames are larger than a reading can be:
 *   deep       none
 *   frame      one above that
 *   frames     and one among these, far from it
 *   realigned  one above, whose CFA is saved at its far end, where no copy has it
 *   leaf       that of the function itself, below a stack that is small otherwise */
#include "chain.h"

static const char *kind;

FRAME void cut_spin(void)
{
	char pad[300 << 10];

	if (kind[0] == 'l')
		ESCAPE(pad);
	while (chain_again())
		if (chain_page)
			usleep(1000);
}

FRAME void cut_small(int n)
{
	if (n == 0)
		cut_spin();
	else
		cut_small(n - 1);
	KEEP();
}

FRAME void cut_near(void)
{
	struct timespec apart = {0, 1000000};

	while (chain_again())
		if (chain_page)
			nanosleep(&apart, NULL);
}

FRAME void cut_down(int n)
{
	char pad[1000];

	memset(pad, 1, sizeof pad);
	ESCAPE(pad);
	if (n == 2 && strcmp(kind, "frames") == 0) {
		char *p = (char *)__builtin_alloca(300 << 10);

		ESCAPE(p);
		cut_down(n - 1);
		ESCAPE(p);
	} else if (n == 0) {
		cut_near();
	} else {
		cut_down(n - 1);
	}
	ESCAPE(pad);
}

FRAME void cut_large(void)
{
	char *p = (char *)__builtin_alloca(2 << 20);

	ESCAPE(p);
	cut_down(40);
	ESCAPE(p);
}

FRAME void cut_realigned(void)
{
	char aligned[64] __attribute__((aligned(64)));
	char *p = (char *)__builtin_alloca(2 << 20);

	ESCAPE(aligned);
	ESCAPE(p);
	cut_down(40);
	ESCAPE(p);
}

int main(int argc, char **argv)
{
	kind = argc > 2 ? argv[2] : "deep";
	chain_begin(argc, argv);
	chain_say("main main");
	if (kind[0] == 'l')
		cut_small(40);
	else if (strcmp(kind, "deep") == 0)
		cut_down(40);
	else if (kind[0] == 'r')
		cut_realigned();
	else
		cut_large();
	KEEP();
	return 0;
}
