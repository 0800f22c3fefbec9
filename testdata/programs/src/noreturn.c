/* A call that does not return, at the very end of its function: the return
 * address is the first byte of the next function, whose rules do not hold for
 * it. Functions are not padded (-falign-functions=1), and the next one is the
 * symbol noreturn_next. */
#include "chain.h"

__attribute__((noreturn)) FRAME void noreturn_leaf(int n)
{
	spin();
	exit(n);
}

void noreturn_last(int n);
void noreturn_next(void);

__asm__(".text\n"
	".globl noreturn_last\n"
	".type noreturn_last, @function\n"
	"noreturn_last:\n"
	".cfi_startproc\n"
	"	sub $40, %rsp\n"
	"	.cfi_adjust_cfa_offset 40\n"
	"	call noreturn_leaf\n"
	".cfi_endproc\n"
	".size noreturn_last, .-noreturn_last\n"
	".globl noreturn_next\n"
	".type noreturn_next, @function\n"
	"noreturn_next:\n"
	".cfi_startproc\n"
	"	ret\n"
	".cfi_endproc\n"
	".size noreturn_next, .-noreturn_next\n");

/* The same, as the compiler does it. */
__attribute__((noreturn)) FRAME void noreturn_compiled(int n)
{
	noreturn_last(n);
	__builtin_unreachable();
}

FRAME int noreturn_outer(int n)
{
	if (n >= 0)
		noreturn_compiled(0);
	return n;
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main noreturn_outer noreturn_compiled noreturn_last noreturn_leaf");
	int r = noreturn_outer(argc);
	KEEP();
	return r;
}
