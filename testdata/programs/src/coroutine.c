/* A chain on a stack of its own, below makecontext's trampoline. */
#include "chain.h"
#include <ucontext.h>

static ucontext_t home, away;
static char stack[65536] __attribute__((aligned(16)));

FRAME void coroutine_leaf(void)
{
	spin();
}

FRAME void coroutine_work(int n)
{
	coroutine_leaf();
	ESCAPE(&n);
}

FRAME void coroutine_entry(void)
{
	coroutine_work(3);
	KEEP();
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	getcontext(&away);
	away.uc_stack.ss_sp = stack;
	away.uc_stack.ss_size = sizeof stack;
	away.uc_link = &home;
	makecontext(&away, coroutine_entry, 0);
	chain_say("coroutine coroutine_entry coroutine_work coroutine_leaf");
	swapcontext(&home, &away);
	return 0;
}
