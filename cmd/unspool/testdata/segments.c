/* A thread goes on on another piece of memory when its stack is used up, as in split stacks (gcc -fsplit-stack,
 * libgcc's __morestack): CFI leads from the new one to the old one by BP. The new one lies below the thread's
 * stack, whose other end is too far away for a copy, and has been touched all over. */
#include "chain.h"
#include <pthread.h>

#define SEGMENT (1 << 18)

/* more_stack(f, top) */
__asm__(".text\n.globl more_stack\n.type more_stack, @function\nmore_stack:\n"
	".cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset rbp, -16\n"
	"mov %rsp, %rbp\n .cfi_def_cfa_register rbp\n"
	"mov %rsi, %rsp\n call *%rdi\n"
	"mov %rbp, %rsp\n pop %rbp\n .cfi_def_cfa rsp, 8\n ret\n .cfi_endproc\n"
	".size more_stack, .-more_stack\n");

extern void more_stack(void (*f)(void), char *top);

FRAME void segment_leaf(void)
{
	spin();
}

FRAME void *thread_entry(void *arg)
{
	char *segment = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(segment, 1, SEGMENT);
	more_stack(segment_leaf, segment + SEGMENT - (32 << 10));
	KEEP();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	chain_begin(argc, argv);
	chain_say("thread thread_entry more_stack segment_leaf");
	if (pthread_create(&t, NULL, thread_entry, NULL) != 0)
		return 1;
	pthread_join(t, NULL);
	return 0;
}
