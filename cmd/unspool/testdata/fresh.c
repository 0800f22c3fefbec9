/* Stacks of which the kernel copies nothing, as SP is on a page that was never touched. argv[2] says why:
 * "leaf" is in a function with a large array of which it uses the end only, "deep" begins, again and again, a
 * thread that recurses into pages that are new to it. */
#include "chain.h"
#include <pthread.h>

FRAME void fresh_leaf(void)
{
	volatile char b[1 << 20];

	while (!chain_over)
		b[sizeof b - 1] += 1;
}

FRAME void fresh_caller(void)
{
	fresh_leaf();
	KEEP();
}

FRAME int fresh_down(int n)
{
	volatile char b[12100]; /* with pages between those that are touched, so that hardly any copy goes on */

	/* As long as the page takes that comes then, so that SP is often seen without one. */
	for (int i = 0; i < 10000; i++)
		__asm__ volatile("");
	b[0] = 1;
	int r = n > 0 ? fresh_down(n - 1) : 0;
	KEEP();
	return r + b[0];
}

static void *fresh_thread(void *arg)
{
	fresh_down(500);
	return arg;
}

int main(int argc, char **argv)
{
	static char other[65536];
	stack_t ss = {.ss_sp = other, .ss_size = sizeof other};
	struct sigaction sa;

	chain_begin(argc, argv);
	/* A signal that does not end the program yet must not touch the stack. */
	sigaltstack(&ss, NULL);
	sigaction(SIGALRM, NULL, &sa);
	sa.sa_flags |= SA_ONSTACK;
	sigaction(SIGALRM, &sa, NULL);
	chain_busy = 1;
	chain_say("main main fresh_caller fresh_leaf");
	if (argc > 2 && strcmp(argv[2], "leaf") == 0)
		fresh_caller();
	while (!chain_over) {
		pthread_t t;

		if (pthread_create(&t, NULL, fresh_thread, NULL) == 0)
			pthread_join(t, NULL);
	}
	return 0;
}
