/* Burns half a second of CPU time, or touches the pages that chain.h counts (=N), in a function that no CFI describes, as there are in .init and .fini of every
 * library. Its caller has a frame pointer, so whoever follows that finds the caller's caller. */
#include "chain.h"
#include <time.h>

__asm__(".text\n"
	".type spin_without_cfi, @function\n"
	"spin_without_cfi:\n"
	"	sub $8, %rsp\n"
	"1:	movb $1, (%rsi)\n"
	"	dec %rdi\n"
	"	jnz 1b\n"
	"	add $8, %rsp\n"
	"	ret\n"
	".size spin_without_cfi, . - spin_without_cfi\n");

void spin_without_cfi(long rounds, volatile char *page);

__attribute__((noipa, optimize("no-omit-frame-pointer"))) void spin_a_while(long rounds, volatile char *page)
{
	spin_without_cfi(rounds, page);
	KEEP();
}

int main(int argc, char **argv)
{
	struct timespec spent;
	char touched = 0;

	if (argc > 1) {
		chain_begin(argc, argv);
		for (; chain_left > 0; chain_left = chain_left - 1, chain_page += CHAIN_PAGE)
			spin_a_while(1, chain_page);
		return 0;
	}
	do {
		spin_a_while(1000000, &touched);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
	} while (spent.tv_sec == 0 && spent.tv_nsec < 500000000);
	return 0;
}
