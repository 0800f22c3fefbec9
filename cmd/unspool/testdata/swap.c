/* Moves one of two pieces of its code to the same address by turns, with mremap, of which the kernel tells
 * nobody. Their functions are called one_ and two_, and differ in where they lie and how large their frames
 * are. Each stays there for 20 milliseconds, and sometimes for 400, in which it can be seen; or for as many
 * as argv[2] says. If it counts, each touches five pages there, and stops. */
#include "chain.h"
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <time.h>

enum { PAGE = 4096 };

/* Code that has no name for anything outside runs wherever it lies. */
#define INSIDE(name) __attribute__((section(#name), aligned(16))) FRAME long
#define KIND(name, words)						\
	__asm__(".pushsection " #name ", \"ax\", @progbits\n"		\
		".balign 4096\n.popsection");					\
	INSIDE(name) name##_leaf(long n, volatile char *page, long step)			\
	{									\
		volatile long b[words];						\
		b[n & 1] = 1;							\
		while (n-- > 0) {						\
			*page = 1;						\
			page += step;					\
		}								\
		return b[0] + n;						\
	}									\
	INSIDE(name) name##_inner(long n, volatile char *page, long step)			\
	{									\
		volatile long b[words];						\
		b[n & 1] = name##_leaf(n, page, step);				\
		KEEP();								\
		return b[n & 1];						\
	}									\
	INSIDE(name) name##_outer(long n, volatile char *page, long step)			\
	{									\
		volatile long b[words + 3];					\
		b[n & 1] = name##_inner(n, page, step);				\
		KEEP();								\
		return b[n & 1];						\
	}

KIND(one, 20)
KIND(two, 300)

extern char __start_one[], __start_two[];

static int find_base(struct dl_phdr_info *info, size_t n, void *base)
{
	(void)n;
	*(uintptr_t *)base = info->dlpi_addr;
	return 1; /* the program comes first */
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

struct piece {
	char *start;	  /* of its page, in the program */
	long (*outer)(long, volatile char *, long);
	char *spare, *at; /* where it waits, and is */
};

static void move(struct piece *p, char *to)
{
	p->at = mremap(p->at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (p->at != to)
		exit(1);
}

int main(int argc, char **argv)
{
	struct piece pieces[] = {
		{.start = __start_one, .outer = one_outer},
		{.start = __start_two, .outer = two_outer},
	};
	char *room = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = open("/proc/self/exe", O_RDONLY);
	const int turn = chain_arg(argc, argv, 2, 0);
	uintptr_t base = 0;
	long r = 0;

	dl_iterate_phdr(find_base, &base);
	for (int i = 0; i < 2; i++) {
		/* Linked so that addresses are offsets in the file. */
		off_t offset = (uintptr_t)pieces[i].start - base;

		pieces[i].spare = pieces[i].at = room + (2 + 2 * i) * PAGE;
		if (mmap(pieces[i].at, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file,
			 offset) == MAP_FAILED)
			return 1;
	}
	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main one_outer");
	for (int i = 0; chain_page ? chain_left > 0 : !chain_over; i++) {
		struct piece *p = &pieces[i % 2];
		double stays = turn ? turn / 1000.0 : i % 16 < 2 ? 0.4 : 0.02;
		char touched = 0;

		move(p, room);
		long (*outer)(long, volatile char *, long) =
			(long (*)(long, volatile char *, long))(void *)(room + ((char *)p->outer - p->start));
		if (chain_page) {
			r += outer(5, chain_page, CHAIN_PAGE);
			chain_left -= 5;
			chain_page += 5 * CHAIN_PAGE;
			raise(SIGSTOP);
		} else {
			for (double end = now() + stays; now() < end && !chain_over;)
				r += outer(20000, &touched, 0);
		}
		move(p, p->spare);
	}
	return r == 1;
}
