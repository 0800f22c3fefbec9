/* Burns half a second of CPU time in a function that no CFI describes, as there are in .init and .fini of every
 * library. Its caller has a frame pointer, so whoever follows that finds the caller's caller. */
#include "chain.h"
#include <time.h>

__asm__(".text\n"
	".type spin_without_cfi, @function\n"
	"spin_without_cfi:\n"
	"	sub $8, %rsp\n"
	"1:	dec %rdi\n"
	"	jnz 1b\n"
	"	add $8, %rsp\n"
	"	ret\n"
	".size spin_without_cfi, . - spin_without_cfi\n");

void spin_without_cfi(long rounds);

__attribute__((noipa, optimize("no-omit-frame-pointer"))) void spin_a_while(void)
{
	spin_without_cfi(1000000);
	KEEP();
}

int main(void)
{
	struct timespec spent;
	do {
		spin_a_while();
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
	} while (spent.tv_sec == 0 && spent.tv_nsec < 500000000);
	return 0;
}
