/* maps RATE FILE... keeps a CPU busy and maps so many times a second the code of one of the
 * files, in turn, where that of another was. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16
#define SIZE (64 << 10)

static long now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

/* Some frames deep. */
static __attribute__((noinline)) unsigned busy(int depth, unsigned n)
{
	if (depth > 0)
		n = busy(depth - 1, n) + 1;
	else
		for (int i = 0; i < 20000; i++) {
			n = n * 1664525u + 1013904223u;
			__asm__ volatile("" : "+r"(n));
		}
	__asm__ volatile("" : "+r"(n));
	return n;
}

int main(int argc, char **argv)
{
	unsigned n = 1;

	if (argc < 3 || atoi(argv[1]) < 1)
		return 2;
	char *room = mmap(NULL, SLOTS * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long step = 1000000000L / atoi(argv[1]), next = now_ns();
	for (long maps = 0;; maps++, next += step) {
		int fd = open(argv[2 + maps % (argc - 2)], O_RDONLY);

		if (fd >= 0) {
			mmap(room + maps % SLOTS * SIZE, SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0);
			close(fd);
		}
		while (now_ns() < next + step)
			n = busy(8, n);
	}
	return n == 0;
}
