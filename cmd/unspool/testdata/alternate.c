/* Runs functions called one_ and two_ by turns, as coroutines on the same stack. Their frames differ, so that
 * what is remembered of one is wrong for the other. Each leaf touches a page: argv[1] is the number of times, =N. */
#include "chain.h"
#include <ucontext.h>

#define KIND(name, words)						\
	FRAME int name##_leaf(int n)					\
	{								\
		chain_again();						\
		return n + 1;						\
	}								\
	FRAME int name##_inner(int n)					\
	{								\
		volatile long b[words];					\
		b[n] = name##_leaf(n);					\
		KEEP();							\
		return b[n];						\
	}								\
	FRAME int name##_outer(int n)					\
	{								\
		volatile long b[words + 3];				\
		b[n] = name##_inner(n);					\
		KEEP();							\
		return b[n];						\
	}

KIND(one, 8)
KIND(two, 200)

static ucontext_t back, own;
static char stack[64 << 10];

FRAME void one_coroutine(void) { one_outer(1); KEEP(); }
FRAME void two_coroutine(void) { two_outer(1); KEEP(); }

static void coroutine(void (*f)(void))
{
	getcontext(&own);
	own.uc_stack.ss_sp = stack;
	own.uc_stack.ss_size = sizeof stack;
	own.uc_link = &back;
	makecontext(&own, f, 0);
	swapcontext(&back, &own);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	while (chain_left > 0) {
		coroutine(one_coroutine);
		coroutine(two_coroutine);
	}
	return 0;
}
