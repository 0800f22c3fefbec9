/* Stacks of which the kernel copies nothing, as SP is on a page that was never touched. argv[2] says why:
 * "leaf" is in a function with a large array of which it uses the end only, "deep" is a thread that recurses, as often
 * as it is counted, into pages that are new to it. */
#include "chain.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

static volatile int slowly;
static const struct timespec pause_length = {0, 5000000};

/* Sleeps without any use of the stack. */
static inline __attribute__((always_inline)) void pause_untouched(void)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result)
		: "0"((long)SYS_nanosleep), "D"(&pause_length), "S"(NULL)
		: "rcx", "r11", "memory");
}

FRAME void untouched_leaf(void)
{
	volatile char b[1 << 20];

	b[sizeof b - 1] = 1;
	while (chain_again())
		if (slowly)
			pause_untouched();
}

FRAME void untouched_caller(void)
{
	untouched_leaf();
	KEEP();
}

FRAME int untouched_down(int n)
{
	volatile char b[12100]; /* with pages between those that are touched, so that hardly any copy goes on */

	b[0] = 1;
	int r = n > 1 ? untouched_down(n - 1) : 0;
	KEEP();
	return r + b[0];
}

static void *untouched_thread(void *arg)
{
	untouched_down(chain_left);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	chain_begin(argc, argv);
	chain_say("main main untouched_caller untouched_leaf");
	slowly = argc > 3 && strcmp(argv[3], "slowly") == 0;
	if (argc > 2 && strcmp(argv[2], "leaf") == 0)
		untouched_caller();
	else if (pthread_create(&t, NULL, untouched_thread, NULL) == 0)
		pthread_join(t, NULL);
	return 0;
}
