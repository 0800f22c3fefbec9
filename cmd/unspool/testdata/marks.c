/* Calls the system argv[1] times ("=N") by CALL, which fails, and which hardly any other program uses. With
 * "unseen" as argv[2] it does so on a page of its stack that was never touched. */
#include "chain.h"
#include <sys/syscall.h>

#define MARK()                                                                                                         \
	do {                                                                                                           \
		long r_;                                                                                               \
		__asm__ volatile("syscall" : "=a"(r_) : "a"(CALL), "D"(-1) : "rcx", "r11", "memory");   \
	} while (0)

FRAME void marks_leaf(void)
{
	MARK();
}

FRAME void marks_unseen(void)
{
	volatile char b[1 << 20];

	ESCAPE(b);
	MARK();
	KEEP();
}

FRAME void marks_run(int unseen)
{
	for (; chain_left > 0; chain_left = chain_left - 1) {
		if (unseen)
			marks_unseen();
		else
			marks_leaf();
		KEEP();
	}
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	if (argc < 3)
		chain_say("main main marks_run marks_leaf");
	marks_run(argc > 2);
	KEEP();
	return 0;
}
