/* One cause each why the two walks see different stacks, chosen by argv[1]. All functions in C
 * have a frame pointer, and those in assembly are what each case is about. */
#include "start.h"

FRAME void spin(void)
{
	for (volatile int i = 0; i < 1; i++)
		touch_page();
}

/* Each is called by its own caller, so that there is a frame to miss. */
void bare(void), passing(void (*)(void)), zero(void), astray(void), unlisted(void), unlisted_zero(void);

__asm__(
	/* A leaf that leaves BP alone. */
	"bare:\n"
	".cfi_startproc\n"
	"mov next_page(%rip), %rax\n"
	"movb $1, (%rax)\n"
	"addq $4096, next_page(%rip)\n"
	"ret\n"
	".cfi_endproc\n"
	/* Calls its argument and leaves BP alone. */
	"passing:\n"
	".cfi_startproc\n"
	"sub $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"call *%rdi\n"
	"add $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"ret\n"
	".cfi_endproc\n"
	/* A number in BP, in the page that nobody can map. */
	"zero:\n"
	".cfi_startproc\n"
	"push %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_offset rbp, -16\n"
	"mov $1000, %ebp\n"
	"mov next_page(%rip), %rax\n"
	"movb $1, (%rax)\n"
	"addq $4096, next_page(%rip)\n"
	"pop %rbp\n"
	".cfi_adjust_cfa_offset -8\n"
	".cfi_restore rbp\n"
	"ret\n"
	".cfi_endproc\n"
	/* Has a pointer to data in BP. */
	"astray:\n"
	".cfi_startproc\n"
	"push %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_offset rbp, -16\n"
	"lea secret(%rip), %rbp\n"
	"mov next_page(%rip), %rax\n"
	"movb $1, (%rax)\n"
	"addq $4096, next_page(%rip)\n"
	"pop %rbp\n"
	".cfi_adjust_cfa_offset -8\n"
	".cfi_restore rbp\n"
	"ret\n"
	".cfi_endproc\n"
	/* A frame pointer and no CFI. */
	"unlisted:\n"
	"push %rbp\n"
	"mov %rsp, %rbp\n"
	"mov next_page(%rip), %rax\n"
	"movb $1, (%rax)\n"
	"addq $4096, next_page(%rip)\n"
	"pop %rbp\n"
	"ret\n"
	/* Neither. */
	"unlisted_zero:\n"
	"push %rbp\n"
	"xor %ebp, %ebp\n"
	"mov next_page(%rip), %rax\n"
	"movb $1, (%rax)\n"
	"addq $4096, next_page(%rip)\n"
	"pop %rbp\n"
	"ret\n");

/* What astray has for a frame. No frame, no code: it must be in no file. */
unsigned long secret[2] = {0x7365637265743031, 0x7365637265743032};

FRAME void deep(int n)
{
	if (n > 1)
		deep(n - 1);
	else
		spin();
	KEEP();
}

/* Frames of more than 4 KiB. */
FRAME void wide(int n)
{
	volatile char b[4096];

	b[0] = n;
	if (n > 1)
		wide(n - 1);
	else
		spin();
	b[1] = b[0];
}

FRAME void through(void (*f)(void))
{
	f();
	KEEP();
}

int start(long argc, char **argv)
{
	if (argc < 2)
		return 1;
	*(volatile unsigned long *)secret; /* the kernel does not wait for pages */
	for (int i = 0; i < TIMES; i++) {
		switch (argv[1][0]) {
		case 's':
			through(spin);
			break;
		case 'b':
			through(bare);
			break;
		case 'p':
			passing(spin);
			break;
		case 'z':
			through(zero);
			break;
		case 'a':
			through(astray);
			break;
		case 'u':
			through(unlisted);
			break;
		case 'n':
			through(unlisted_zero);
			break;
		case 'd':
			deep(300);
			break;
		case 'w':
			wide(4);
			break;
		}
		KEEP();
	}
	return 0;
}
