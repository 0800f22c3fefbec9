/* Takes page faults where compilers' unwind tables do not follow what the code does: in the epilogue of a
 * function that aligns its stack, and in the padding between two functions, by which code runs from one into
 * the next, as glibc's __memset_chk does. There the fault is for the code itself, in a page that is let go of
 * each time. */
#include "chain.h"

void aligned_leaf(volatile char *to, long n);
void padded_leaf(void);
extern char padding_page[];

/* The rules for BP and the CFA are those of gcc; rep stosb comes when BP is the caller's again. */
__asm__(".text\n"
	".type aligned_leaf, @function\n"
	"aligned_leaf:\n"
	"	.cfi_startproc\n"
	"	lea 8(%rsp), %r10\n"
	"	.cfi_def_cfa r10, 0\n"
	"	and $-16, %rsp\n"
	"	push -8(%r10)\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	.cfi_escape 0x10, 0x6, 0x2, 0x76, 0\n"	     /* BP is at BP + 0 */
	"	push %r10\n"
	"	.cfi_escape 0xf, 0x3, 0x76, 0x78, 0x6\n"     /* the CFA is what lies at BP - 8 */
	"	mov %rsi, %rcx\n"
	"	pop %r10\n"
	"	.cfi_def_cfa r10, 0\n"
	"	pop %rbp\n"
	"	rep stosb\n"
	"	lea -8(%r10), %rsp\n"
	"	.cfi_def_cfa rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size aligned_leaf, . - aligned_leaf\n"
	".p2align 12\n"
	".skip 4096 - 32, 0xcc\n"
	".type padded_leaf, @function\n"
	"padded_leaf:\n"
	"	.cfi_startproc\n"
	"	cmp %rsp, %rsp\n"
	"	jb abort\n"
	"	.cfi_endproc\n"
	".rept 32 - 9\n"
	"	nop\n"
	".endr\n"
	"padding_page:\n"
	".rept 32\n"
	"	nop\n"
	".endr\n"
	".size padded_leaf, . - padded_leaf\n"
	".type behind_padding, @function\n"
	"behind_padding:\n"
	"	.cfi_startproc\n"
	"	lea 1f(%rip), %rax\n" /* so that nobody sees a ret from the padding */
	"	jmp *%rax\n"
	"1:	ret\n"
	"	.cfi_endproc\n"
	".size behind_padding, . - behind_padding\n"
	".p2align 12\n"); /* nothing else is in that page */

/* Its frame is found by BP. */
FRAME int own_frame(int n)
{
	volatile char *more = __builtin_alloca(n * 16);

	more[0] = 1;
	aligned_leaf(chain_page, 1);
	chain_page += CHAIN_PAGE;
	madvise(padding_page, CHAIN_PAGE, MADV_DONTNEED);
	padded_leaf();
	return more[0];
}

FRAME int inner(int n)
{
	int r = own_frame(n);

	KEEP();
	return r;
}

int main(int argc, char **argv)
{
	int r = 0;

	chain_begin(argc, argv);
	for (; chain_left > 0; chain_left--)
		r += inner(argc);
	return r == 0;
}
