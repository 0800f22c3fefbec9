/* Stacks realigned for locals of 64 bytes' alignment, as vector code has them.
 * With arguments on the stack (nine are) or alloca, gcc keeps the old stack
 * pointer in r10 and then in the frame: the CFA is an expression that reads
 * memory. */
#include "chain.h"
#include <alloca.h>

typedef struct {
	double v[8];
} __attribute__((aligned(64))) wide;

FRAME double realign_leaf(double d)
{
	wide w;
	memset(&w, 0, sizeof w);
	ESCAPE(&w);
	spin();
	ESCAPE(&w);
	return d + w.v[0];
}

FRAME double realign_end(double d)
{
	return d + 1;
}

static double (*volatile realign_tail)(double) = realign_end;

FRAME double realign_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
	double r;
	{ /* as no local is left behind it, gcc ends the function in a jump */
		wide w;
		memset(&w, 0, sizeof w);
		ESCAPE(&w);
		r = realign_leaf(a + b + c + d + e + f);
		ESCAPE(&w);
		r += w.v[1] + g + h + i;
	}
	return realign_tail(r);
}

/* Callers of the same shape: with the frame pointer of its caller's caller, a
 * frame is passed over, and nothing else looks wrong. */
FRAME double realign_alike(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
	wide w;
	memset(&w, 0, sizeof w);
	ESCAPE(&w);
	double r = realign_arguments(a, b, c, d, e, f, g, h, i);
	ESCAPE(&w);
	return r + w.v[1] + g + h + i;
}

FRAME double realign_same(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
	wide w;
	memset(&w, 0, sizeof w);
	ESCAPE(&w);
	double r = realign_alike(a, b, c, d, e, f, g, h, i);
	ESCAPE(&w);
	return r + w.v[1] + g + h + i;
}

FRAME double realign_alloca(int n)
{
	wide w;
	char *p = (char *)alloca((size_t)n);
	memset(&w, 0, sizeof w);
	memset(p, 0, (size_t)n);
	ESCAPE(&w);
	ESCAPE(p);
	double r = realign_same(n, 2, 3, 4, 5, 6, 7, 8, n);
	ESCAPE(p);
	return r + w.v[2];
}

FRAME double realign_outer(int n)
{
	wide w;
	memset(&w, 0, sizeof w);
	ESCAPE(&w);
	double r = realign_alloca(n + 50);
	ESCAPE(&w);
	return r + w.v[3];
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main realign_outer realign_alloca realign_same realign_alike realign_arguments realign_leaf");
	double r = realign_outer(argc);
	KEEP();
	return r < 0;
}
