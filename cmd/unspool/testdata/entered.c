/* Generated code is entered as V8's is, by functions that no CFI describes: entry_stub calls a trampoline, which
 * moves its arguments and then makes a frame, and that calls what jumps on to entered. As long as entered has made
 * no frame, BP leads from it to entry_stub, past the trampoline. There it touches a page; argv[2] says where:
 * "first", or "pushed" for behind its push of BP. */
#include "chain.h"

__asm__(".text\n"
	".balign 32, 0xcc\n"
	".type entry_stub, @function\n"
	"entry_stub:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	push $2\n"
	"	call trampoline\n"
	"	add $8, %rsp\n"
	"	pop %rbp\n"
	"	ret\n"
	".size entry_stub, . - entry_stub\n"
	".balign 32, 0xcc\n"
	".type trampoline, @function\n"
	"trampoline:\n"
	"	mov %rsi, %rdx\n"
	"	xor %esi, %esi\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	push $44\n"
	"	push %rdi\n"
	"	cmp $0, %rdi\n"
	"	jne 1f\n"
	"	call abort\n"
	"	int3\n"
	".balign 16, 0xcc\n"
	"1:	call jumps_on\n"
	"	mov %rbp, %rsp\n"
	"	pop %rbp\n"
	"	ret\n"
	".size trampoline, . - trampoline\n"
	".balign 32, 0xcc\n"
	".type jumps_on, @function\n"
	"jumps_on:\n"
	"	lea is_left(%rip), %rcx\n"
	"	jmp *%rdi\n"
	".size jumps_on, . - jumps_on\n"
	".balign 32, 0xcc\n"
	".type entered, @function\n"
	"entered:\n"
	"	xor %r10d, %r10d\n"
	"	sub %r10, %rsp\n" /* room for as many arguments as are missing */
	"	test %rdi, %rdi\n"
	"	jne 2f\n"
	"	push %rbp\n" /* another way has a frame */
	"	mov %rsp, %rbp\n"
	"	call abort\n"
	"	pop %rbp\n"
	"2:	movb $1, (%rdx)\n"
	"	jmp *%rcx\n"
	".size entered, . - entered\n"
	".balign 32, 0xcc\n"
	".type entered_pushed, @function\n"
	"entered_pushed:\n"
	"	xor %r10d, %r10d\n"
	"	sub %r10, %rsp\n"
	"	push %rbp\n"
	"	movb $1, (%rdx)\n"
	"	mov %rsp, %rbp\n"
	"	mov %rbp, %rsp\n"
	"	pop %rbp\n"
	"	jmp *%rcx\n"
	".size entered_pushed, . - entered_pushed\n"
	".balign 32, 0xcc\n"
	"is_left:\n"
	"	ret\n"
	".balign 32, 0xcc\n");

void entry_stub(void (*code)(void), volatile char *page);
void entered(void);
void entered_pushed(void);

int main(int argc, char **argv)
{
	int pushed = argc > 2 && strcmp(argv[2], "pushed") == 0;

	chain_begin(argc, argv);
	chain_say(pushed ? "main main entry_stub trampoline entered_pushed" : "main main entry_stub trampoline entered");
	for (; chain_left > 0; chain_left--, chain_page += CHAIN_PAGE)
		entry_stub(pushed ? entered_pushed : entered, chain_page);
	return 0;
}
