/* A function left by a jump has no frame: its caller is the leaf's caller. In
 * assembly, because compilers differ in when they do it. */
#include "chain.h"

void tail_jump(void);

__asm__(".text\n"
	".globl tail_jump\n"
	".type tail_jump, @function\n"
	"tail_jump:\n"
	".cfi_startproc\n"
	"	jmp tail_leaf\n"
	".cfi_endproc\n"
	".size tail_jump, .-tail_jump\n");

FRAME void tail_leaf(void)
{
	spin();
}

FRAME void tail_outer(int n)
{
	tail_jump();
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main tail_outer tail_leaf");
	tail_outer(argc);
	KEEP();
	return 0;
}
