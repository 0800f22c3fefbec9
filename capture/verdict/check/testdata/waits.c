/* It has a handler on a stack of its own that takes a page fault and then waits, so that what it has
 * interrupted is read from the process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static char stack[1 << 16];

__attribute__((noipa)) static void work(void)
{
	struct timespec wait = { 0, 60000000 };
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*(volatile char *)page = 1;
	munmap(page, 4096);
	nanosleep(&wait, NULL);
}

static void handler(int sig)
{
	(void)sig;
	for (;;)
		work();
}

__attribute__((noipa)) int inner(int n) { return raise(SIGUSR1) + n; }
__attribute__((noipa)) int outer(int n) { return inner(n) + 1; }

int main(int argc, char **argv)
{
	stack_t own = { .ss_sp = stack, .ss_size = sizeof stack, .ss_flags = 0 };
	struct sigaction sa = { 0 };
	(void)argv;
	sa.sa_handler = handler;
	sa.sa_flags = SA_ONSTACK;
	sigaltstack(&own, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	return outer(argc);
}
