/* Two functions by turns raise a signal whose handler has a stack of its own. The handler touches a page, in a
 * function that tells whose signal it was, then sleeps for 12 ms. The second argument says how the signals differ:
 *     signals   each function raises one of its own
 *     callers   they raise the same one, through a function that is at the same place on the stack for both:
 *               but for their callers all is equal
 *     stays     the first one's handler does not return, and mostly sleeps */
#include "chain.h"
#include <sys/syscall.h>
#include <time.h>

static volatile int turn, stays;

FRAME void work_one(void)
{
	chain_again();
}

FRAME void work_two(void)
{
	chain_again();
}

FRAME void handler(int sig)
{
	struct timespec pause = {0, stays ? 60000000 : 12000000};

	(void)sig;
	do {
		if (turn == 1)
			work_one();
		else
			work_two();
		nanosleep(&pause, NULL);
	} while (stays && chain_left > 0);
}

FRAME void send(int sig)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result)
		: "0"((long)SYS_tgkill), "D"((long)getpid()), "S"((long)gettid()), "d"((long)sig)
		: "rcx", "r11", "memory");
	KEEP();
}

FRAME void one(int sig)
{
	turn = 1;
	send(sig);
	KEEP();
}

FRAME void two(int sig)
{
	turn = 2;
	send(sig);
	KEEP();
}

int main(int argc, char **argv)
{
	static char other[65536];
	stack_t ss = {.ss_sp = other, .ss_size = sizeof other};
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	int second = SIGUSR2;

	chain_begin(argc, argv);
	sigaltstack(&ss, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	if (argc > 2 && strcmp(argv[2], "callers") == 0)
		second = SIGUSR1;
	stays = argc > 2 && strcmp(argv[2], "stays") == 0;
	chain_say("main main one send * handler work_one");
	while (chain_left > 0) {
		one(SIGUSR1);
		two(second);
	}
	return 0;
}
