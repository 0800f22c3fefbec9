/* A handler at work on top of the function that the signal interrupted. A
 * second argument "other" moves it to an alternate stack, where the interrupted
 * frames are out of reach of a copy of the handler's stack. */
#include "chain.h"
#include <sys/time.h>

static volatile sig_atomic_t handled;

FRAME void signal_leaf(void)
{
	spin();
}

FRAME void signal_handler(int sig)
{
	signal_leaf();
	handled = sig;
}

/* The signal comes at any instruction of this loop. */
FRAME void signal_interrupted(void)
{
	volatile unsigned n = 0;
	while (!handled)
		n++;
}

FRAME void signal_outer(int n)
{
	signal_interrupted();
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	struct itimerval after = {{0, 0}, {0, 20000}};
	static char other[65536];
	stack_t ss;
	struct sigaction sa;

	chain_begin(argc, argv);
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = signal_handler;
	if (argc > 2 && strcmp(argv[2], "other") == 0) {
		memset(&ss, 0, sizeof ss);
		ss.ss_sp = other;
		ss.ss_size = sizeof other;
		sigaltstack(&ss, NULL);
		sa.sa_flags = SA_ONSTACK;
	}
	sigaction(SIGPROF, &sa, NULL);
	chain_say("main main signal_outer signal_interrupted * signal_handler signal_leaf");
	setitimer(ITIMER_PROF, &after, NULL);
	signal_outer(argc);
	KEEP();
	return 0;
}
