/* What every program here has in common: it prints the call chain that it is
 * about to run, and then stays at the end of that chain until its time is up, or
 * until it has been there as often as it was told to.
 *
 * argv[1] says which: a number of seconds (default 1), or how many times, as
 * "=N" or "@N". Each time the end of the chain writes to a page that was never touched, so
 * that `-e page-faults:u -c 1` takes exactly N samples there, however fast or busy
 * the machine is. With "@N" the program stops (SIGSTOP) when it has printed its
 * chain, and goes on when it is told to (SIGCONT): a recorder can attach meanwhile.
 *
 * The line is "chain KIND FRAME FRAME ...", the outermost frame first. KIND is
 * what the chain's stack belongs to: main, thread (below start_thread) or
 * coroutine (below makecontext's trampoline). A frame is a function's name as
 * the symbol table has it after demangling, without parameters;
 *     *   stands for one or more frames of other code (libc, a signal trampoline),
 *     ?   for none or more of them.
 *
 * Frames survive every compiler and -O level: functions are noinline, calls are
 * followed by KEEP so that none is a tail call, and spin is inlined into the
 * leaf, so that the leaf is where the samples fall. */
#ifndef CHAIN_H
#define CHAIN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* g++ defines it itself */
#endif

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#if defined(__clang__)
#define FRAME __attribute__((noinline, used))
#else
/* noipa: no clones (name.constprop.0, name.part.0), nothing learned from a callee. */
#define FRAME __attribute__((noipa, used))
#endif

#define KEEP() __asm__ volatile("" ::: "memory")

/* Holds on to an address, so that what is stored there must exist. */
#define ESCAPE(p) __asm__ volatile("" : : "g"(p) : "memory")

static volatile sig_atomic_t chain_over;
static volatile long chain_left;    /* how many times it is still to be at the chain's end, if that is counted */
static volatile char *chain_page;   /* the next page to touch, or NULL if it is not counted */
static int chain_waits;             /* whether to stop when the chain is printed */
static volatile sig_atomic_t chain_busy; /* whether it works all the time, as in spin */
static long chain_began;                 /* CPU time in milliseconds, as chain_cpu has it */

/* That of the process, and of the children that it has waited for. */
static long chain_cpu(void)
{
	struct timespec ts;
	struct rusage of;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	getrusage(RUSAGE_CHILDREN, &of);
	return ts.tv_sec * 1000L + ts.tv_nsec / 1000000 +
	       (of.ru_utime.tv_sec + of.ru_stime.tv_sec) * 1000L +
	       (of.ru_utime.tv_usec + of.ru_stime.tv_usec) / 1000;
}

/* On a busy machine there may have been no CPU to be sampled on yet. */
static void chain_stop(int sig)
{
	static int later;

	(void)sig;
	if (chain_busy && chain_cpu() - chain_began < 400 && later++ < 15)
		alarm(1);
	else
		chain_over = 1;
}

#define CHAIN_PAGE 4096

/* Makes pages of which each is touched once. Large pages would take one fault for many. */
static inline void chain_count(long times)
{
	size_t size = (size_t)(times + 1) * CHAIN_PAGE;
	char *pages = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (times < 1 || pages == (char *)MAP_FAILED) {
		fprintf(stderr, "not a number of times: %ld\n", times);
		exit(2);
	}
	madvise(pages, size, MADV_NOHUGEPAGE);
	chain_left = times;
	chain_page = pages;
}

/* Ends every spin after argv[1] seconds (default 1), or when the process has had 0.4 seconds of CPU time if that
 * is later, whichever function is in it; or after so many times. */
static inline void chain_begin(int argc, char **argv)
{
	struct sigaction sa;

	if (argc > 1 && (argv[1][0] == '=' || argv[1][0] == '@')) {
		chain_waits = argv[1][0] == '@';
		chain_count(atol(argv[1] + 1));
		return;
	}
	chain_began = chain_cpu();
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = chain_stop;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &sa, NULL);
	alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 1);
}

static inline int chain_arg(int argc, char **argv, int n, int otherwise)
{
	return argc > n ? atoi(argv[n]) : otherwise;
}

/* For a chain that was printed in pieces. */
static inline void chain_said(void)
{
	fflush(stdout);
	if (chain_waits)
		raise(SIGSTOP);
}

static inline void chain_say(const char *chain)
{
	printf("chain %s\n", chain);
	chain_said();
}

/* The condition of a loop at the chain's end: whether it goes round once more. */
static inline __attribute__((always_inline)) int chain_again(void)
{
	if (chain_page) {
		if (chain_left == 0)
			return 0;
		chain_left = chain_left - 1;
		*chain_page = 1;
		chain_page += CHAIN_PAGE;
		return 1;
	}
	return !chain_over;
}

static inline __attribute__((always_inline)) void spin(void)
{
	chain_busy = 1;
	while (chain_again())
		KEEP();
}

#endif
