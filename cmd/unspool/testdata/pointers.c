/* Recursion through frames of 1 KiB, argv[2] of them (default 60). With OWN_START, and
 * without the C library's start files, all code from _start on has frame pointers when
 * it is compiled with them: the C library's need not. */
#include "chain.h"

FRAME int pointers_leaf(int n)
{
	spin();
	return n;
}

FRAME int pointers_frame(int n)
{
	volatile char b[960];

	b[n] = 1;
	int r = n > 1 ? pointers_frame(n - 1) : pointers_leaf(n);
	KEEP();
	return r + b[n];
}

int main(int argc, char **argv)
{
	int depth = chain_arg(argc, argv, 2, 60);

	chain_begin(argc, argv);
#ifdef OWN_START
	printf("chain main pointers_start main");
#else
	printf("chain main main");
#endif
	for (int i = 0; i < depth; i++)
		printf(" pointers_frame");
	printf(" pointers_leaf\n");
	chain_said();
	int r = pointers_frame(depth);
	KEEP();
	return r == -1;
}

#ifdef OWN_START
FRAME void pointers_start(long argc, char **argv)
{
	exit(main(argc, argv));
}

__asm__(".globl _start\n"
	"_start:\n"
	".cfi_startproc\n"
	".cfi_undefined rip\n"
	"xor %ebp, %ebp\n"
	"mov (%rsp), %rdi\n"
	"lea 8(%rsp), %rsi\n"
	"call pointers_start\n"
	"hlt\n"
	".cfi_endproc\n");
#endif
