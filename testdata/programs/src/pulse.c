/* Goes up and down its chain all the time, so that samples fall into prologues
 * and epilogues, where the CFA changes with every instruction. Whatever function
 * is sampled, its callers are the chain up to it. */
#include "chain.h"

FRAME long pulse_leaf(long a, long b, long c)
{
	KEEP();
	return a * b + c;
}

/* Enough values live across the calls to use every callee-saved register. */
FRAME long pulse_inner(long a, long b, long c, long d, long e, long f)
{
	long g = pulse_leaf(a, b, c);
	KEEP();
	long h = pulse_leaf(d + g, e, f);
	KEEP();
	return a + b + c + d + e + f + g + h;
}

FRAME long pulse_outer(long a, long b, long c)
{
	char room[64];
	room[0] = 0; /* clang -O0 would clear all of it by memset, of which the chain does not tell */
	ESCAPE(room);
	long r = pulse_inner(a, b, c, a + b, b + c, a + c);
	KEEP();
	return r + room[0] - room[0];
}

FRAME long pulse_run(long n)
{
	long r = n;
	while (chain_again()) {
		r = pulse_outer(r, n, r + 1);
		KEEP();
	}
	return r;
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main pulse_run pulse_outer pulse_inner pulse_leaf");
	long r = pulse_run(argc);
	KEEP();
	return r == -1;
}
