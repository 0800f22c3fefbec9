/* A program with frame pointers whose stack is 64 frames deep, and never the same twice: which of two functions calls
 * next is random. "work N FILE" computes N times at that depth, to be sampled, and writes into the file when it was done,
 * and the CPU time that it took, in ns. "time" walks the stack from within and prints for each way how many frames it
 * has found, and the least CPU time of a walk in ns. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

/* With leaf, main, and three of the C library's up to _start, 64 frames. */
enum { CALLS = 59, MOST = 128, DESCENTS = 200, REPEATS = 200 };

#define FRAME __attribute__((noipa))

static void *ips[MOST];
static uintptr_t highest; /* frame of main */
static volatile unsigned sink;

struct frame {
	struct frame *up;
	void *ip;
};

FRAME static int by_frame_pointer(void)
{
	struct frame *f = __builtin_frame_address(0);
	int n = 0;
	while (n < MOST) {
		ips[n++] = f->ip;
		if (f->up <= f || (uintptr_t)f->up > highest)
			break;
		f = f->up;
	}
	return n;
}

FRAME static int by_backtrace(void)
{
	return backtrace(ips, MOST);
}

/* libunwind, without its headers: both buffers are larger than its types. */
static int (*get_context)(void *), (*init_local)(void *, void *), (*step)(void *);
static int (*get_reg)(void *, int, uintptr_t *), (*unw_backtrace)(void **, int);

FRAME static int by_unw_step(void)
{
	char context[4096] __attribute__((aligned(16))), cursor[8192] __attribute__((aligned(16)));
	int n = 0;
	get_context(context);
	if (init_local(cursor, context) < 0)
		return 0;
	while (n < MOST && step(cursor) > 0)
		get_reg(cursor, 16, (uintptr_t *)&ips[n++]); /* RIP */
	return n;
}

FRAME static int by_unw_backtrace(void)
{
	return unw_backtrace(ips, MOST);
}

static const struct {
	const char *name;
	int (*walk)(void);
} ways[] = {
	{"frame pointers", by_frame_pointer},
	{"backtrace()", by_backtrace},
	{"unw_step()", by_unw_step},
	{"unw_backtrace()", by_unw_backtrace},
};

static int (*walk)(void);
static int frames;
static double least;

static long ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

FRAME static unsigned measure(void)
{
	long begun = ns(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < REPEATS; i++)
		frames = walk();
	double took = (double)(ns(CLOCK_THREAD_CPUTIME_ID) - begun) / REPEATS;
	if (took < least)
		least = took;
	return 0;
}

FRAME static unsigned work(void)
{
	unsigned n = sink;
	for (int i = 0; i < 20000; i++)
		n = n * 1664525u + 1013904223u;
	return n;
}

static unsigned (*leaf)(void);
FRAME static unsigned odd(int n, uint64_t path);

FRAME static unsigned even(int n, uint64_t path)
{
	unsigned v = n == 0 ? leaf() : path & 1 ? odd(n - 1, path >> 1) : even(n - 1, path >> 1);
	return v + sink;
}

FRAME static unsigned odd(int n, uint64_t path)
{
	unsigned v = n == 0 ? leaf() : path & 1 ? odd(n - 1, path >> 1) : even(n - 1, path >> 1);
	return v ^ sink;
}

static void descend(long times)
{
	static uint64_t path = 88172645463325252u;
	for (; times > 0; times--) {
		path ^= path << 13;
		path ^= path >> 7;
		path ^= path << 17;
		sink = even(CALLS - 1, path);
	}
}

int main(int argc, char **argv)
{
	highest = (uintptr_t)__builtin_frame_address(0);
	if (argc > 3 && strcmp(argv[1], "work") == 0) {
		leaf = work;
		descend(atol(argv[2]));
		FILE *f = fopen(argv[3], "w");
		if (!f)
			return 1;
		fprintf(f, "%ld %ld", ns(CLOCK_MONOTONIC), ns(CLOCK_PROCESS_CPUTIME_ID));
		return fclose(f) != 0;
	}
	void *lib = dlopen("libunwind.so.8", RTLD_NOW);
	if (lib) {
		get_context = dlsym(lib, "_Ux86_64_getcontext");
		init_local = dlsym(lib, "_ULx86_64_init_local");
		step = dlsym(lib, "_ULx86_64_step");
		get_reg = dlsym(lib, "_ULx86_64_get_reg");
		unw_backtrace = dlsym(lib, "unw_backtrace");
	}
	leaf = measure;
	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		if (i >= 2 && !(get_context && init_local && step && get_reg && unw_backtrace))
			break;
		walk = ways[i].walk;
		least = 1e18;
		descend(DESCENTS);
		printf("%s\t%d\t%.1f\n", ways[i].name, frames, least);
	}
	return 0;
}
