/* Touches as many fresh pages as its argument says, in a function that is inlined (-DINLINED) or called. */
#include <stdlib.h>
#include <sys/mman.h>

#ifdef INLINED
#define HOW static inline __attribute__((always_inline))
#else
#define HOW static __attribute__((noinline))
#endif

static volatile char *pages;

HOW void inlined_touch(long at)
{
	pages[at * 4096] = 1;
	__asm__ volatile("" ::: "memory");
}

__attribute__((noipa)) static int inlined_work(long n)
{
	for (long i = 0; i < n; i++)
		inlined_touch(i);
	return 1;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 0;
	pages = mmap(0, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return 1;
	madvise((void *)pages, n * 4096, MADV_NOHUGEPAGE);
	return !inlined_work(n);
}
