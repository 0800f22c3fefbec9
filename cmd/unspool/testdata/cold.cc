// A function of which the compiler puts a part elsewhere, as app::handle.cold. Page faults are the samples: 20 in the
// one part, 10 in the other, and one more each where the code of a part comes into memory.
#include <stdio.h>
#include <sys/mman.h>

static volatile char *page;

static inline __attribute__((always_inline)) void touch()
{
	*page = 1;
	page += 4096;
}

__attribute__((cold, noinline)) void rare() { __asm__ volatile("" : : : "memory"); }

namespace app {
__attribute__((noinline)) void handle(long n)
{
	touch();
	if (__builtin_expect(n & 1, 0)) {
		rare();
		touch();
		rare();
	}
}
}

int main()
{
	const size_t size = 64 * 4096;
	void *area = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED) {
		perror("cold: mmap");
		return 1;
	}
	madvise(area, size, MADV_NOHUGEPAGE);
	page = (volatile char *)area;
	for (long n = 0; n < 20; n++)
		app::handle(n);
	return 0;
}
