/* Code in assembly, without CFI, that has in its frame pointer the address of what it works on: a next pointer
 * and the function to be called in the end, as in a frame that is saved BP and return address. How it moves SP
 * nobody can read. It touches a page, which its third argument is. With a second argument of the program, the
 * code is a copy in memory that no file is behind. */
#include "chain.h"
#include <sys/mman.h>

struct request {
	struct request *next;
	void (*done)(void);
};

#ifdef __i386__
__asm__(".text\n.type loop_begin, @function\nloop_begin:\n"
	"push %ebp\n mov 8(%esp), %ebp\n mov 12(%esp), %edx\n mov %esp, (%edx)\n"
	"mov 16(%esp), %ecx\n mov 4(%edx), %esp\n"
	"movb $1, (%ecx)\n"
	"mov (%edx), %esp\n pop %ebp\n ret\nloop_end:\n");
#else
__asm__(".text\n.type loop_begin, @function\nloop_begin:\n"
	"push %rbp\n mov %rdi, %rbp\n mov %rsp, (%rsi)\n"
	"mov %rdx, %rcx\n mov 8(%rsi), %rsp\n"
	"movb $1, (%rcx)\n"
	"mov (%rsi), %rsp\n pop %rbp\n ret\nloop_end:\n");
#endif

typedef void loop(struct request *, void **stacks, volatile char *page);
extern loop loop_begin;
extern char loop_end[];

FRAME void done_callback(void)
{
	KEEP();
}

FRAME void submit(loop *run, struct request *r)
{
	char other[32768] __attribute__((aligned(64)));
	void *stacks[2] = {NULL, other + sizeof other / 2}; /* signals go below that */

	memset(other, 0, sizeof other);
	run(r, stacks, chain_page);
	ESCAPE(other);
}

int main(int argc, char **argv)
{
	struct request requests[2] = {{&requests[1], done_callback}, {NULL, done_callback}};
	loop *run = loop_begin;

	chain_begin(argc, argv);
	if (argc > 2) {
		size_t size = loop_end - (char *)loop_begin;

		run = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(run, loop_begin, size);
	}
	for (; chain_left > 0; chain_left--, chain_page += CHAIN_PAGE)
		submit(run, requests);
	return 0;
}
