/* Stops in the midst of its chain when it has been counted, until SIGCONT: so its files can be found as long as
 * somebody wants them. With a FIFO as argv[2] it writes its PID there before. Then it touches some more pages, and
 * ends at once. */
#include "chain.h"
#include <fcntl.h>

FRAME void stays_leaf(void)
{
	spin();
}

FRAME void stays_ends(void)
{
	static volatile char pages[6 * CHAIN_PAGE];

	for (int i = 1; i < 6; i++)
		pages[i * CHAIN_PAGE] += 1;
}

FRAME void stays_outer(const char *fifo)
{
	stays_leaf();
	if (fifo)
		dprintf(open(fifo, O_WRONLY), "%d\n", (int)getpid());
	raise(SIGSTOP);
	stays_ends();
	ESCAPE(&fifo);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main stays_outer stays_leaf");
	stays_outer(argc > 2 ? argv[2] : NULL);
	KEEP();
	return 0;
}
