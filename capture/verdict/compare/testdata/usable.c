// Touches as many fresh pages as its argument says, each below 20 calls, and calls nothing of libc meanwhile. Then it
// spends that many rounds of time there. Every function has something on its stack: GCC leaves the frame pointer out of
// leaf functions that have nothing there, whatever its flags.
#include <stdlib.h>
#include <sys/mman.h>

static volatile char *pages;

__attribute__((noinline)) static int touch(long at) {
	volatile char kept = 1;
	pages[at * 4096] = kept;
	return kept + 1;
}

__attribute__((noinline)) static int spin(int rounds) {
	volatile int sum = 0;
	for (int i = 0; i < rounds; i++)
		sum += i;
	return sum + 1;
}

__attribute__((noinline)) static int nested(int depth, long at, int rounds) {
	if (depth == 0)
		return touch(at) + spin(rounds);
	int sum = nested(depth - 1, at, rounds);
	__asm__ volatile("" : "+r"(sum)); // it is no tail call
	return sum + 1;
}

int main(int argc, char **argv) {
	long n = argc > 1 ? atol(argv[1]) : 0;
	int rounds = argc > 2 ? atoi(argv[2]) : 0, sum = 0;
	pages = mmap(0, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return 1;
	madvise((void *)pages, n * 4096, MADV_NOHUGEPAGE);
	for (long i = 0; i < n; i++)
		sum += nested(20, i, rounds);
	return sum == 0;
}
