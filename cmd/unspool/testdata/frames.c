/* Calls its leaf out of a frame of SIZE bytes. */
#include "chain.h"

FRAME int frames_leaf(int n)
{
	spin();
	return n + 1;
}

FRAME int frames_large(int n)
{
	volatile char b[SIZE];

	for (size_t i = 0; i < SIZE; i++)
		b[i] = 1; /* the kernel copies no page that was never touched */
	chain_say("main main frames_large frames_leaf");
	int r = frames_leaf(n);
	KEEP();
	return r + b[n];
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	int r = frames_large(argc);
	KEEP();
	return r == -1;
}
