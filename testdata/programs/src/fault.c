/* A signal at the very first instruction of a function. The interrupted PC must
 * be looked up as it is: one byte earlier is another function, whose CFA is 64
 * bytes further up. */
#include "chain.h"
#include <ucontext.h>

void fault_here(void);
void fault_before(void);

__asm__(".text\n"
	".globl fault_before\n"
	".type fault_before, @function\n"
	"fault_before:\n"
	".cfi_startproc\n"
	"	sub $64, %rsp\n"
	"	.cfi_adjust_cfa_offset 64\n"
	"	ud2\n"
	".cfi_endproc\n"
	".size fault_before, .-fault_before\n"
	".globl fault_here\n"
	".type fault_here, @function\n"
	"fault_here:\n"
	".cfi_startproc\n"
	"	ud2\n"
	"	ret\n"
	".cfi_endproc\n"
	".size fault_here, .-fault_here\n");

FRAME void fault_leaf(void)
{
	spin();
}

FRAME void fault_handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = (ucontext_t *)context;

	(void)sig;
	(void)info;
	fault_leaf();
	uc->uc_mcontext.gregs[REG_RIP] += 2; /* past the ud2 */
	KEEP();
}

FRAME void fault_outer(int n)
{
	fault_here();
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	struct sigaction sa;

	chain_begin(argc, argv);
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = fault_handler;
	sa.sa_flags = SA_SIGINFO;
	sigaction(SIGILL, &sa, NULL);
	chain_say("main main fault_outer fault_here * fault_handler fault_leaf");
	fault_outer(argc);
	KEEP();
	return 0;
}
