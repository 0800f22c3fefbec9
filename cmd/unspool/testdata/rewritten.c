/* Touches pages, as often as it is counted, in functions called after NAME, whose frames have SIZE bytes. With a FIFO
 * as argv[2] it then writes its PID there, and stops until SIGCONT. */
#include "chain.h"
#include <fcntl.h>

#define PASTE(a, b) a##b
#define CALLED(name, what) PASTE(name, what)

FRAME void CALLED(NAME, _leaf)(void)
{
	spin();
}

FRAME int CALLED(NAME, _work)(int n, const char *fifo)
{
	volatile char b[SIZE];

	b[n] = 1;
	CALLED(NAME, _leaf)();
	if (fifo) {
		dprintf(open(fifo, O_WRONLY), "%d\n", (int)getpid());
		raise(SIGSTOP);
	}
	return b[n];
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	return CALLED(NAME, _work)(argc, argv[2]) == 0;
}
