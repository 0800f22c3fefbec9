/* An interpreter that jumps to code that it has generated, which runs on the interpreter's frame and jumps
 * back, as PHP's does. With "pointer" as the second argument it is called through a pointer; with "entered"
 * there is none: code that nobody can read is called, and has on its stack what others have left there. */
#include "chain.h"
#include <sys/mman.h>

/* interpreter(code, room, turns): its frame has 72 bytes. The code makes room for itself below. */
__asm__(".text\n.globl interpreter\n.type interpreter, @function\ninterpreter:\n"
	".cfi_startproc\n push %rbx\n .cfi_def_cfa_offset 16\n .cfi_offset rbx, -16\n"
	"push %rbp\n .cfi_def_cfa_offset 24\n .cfi_offset rbp, -24\n"
	"sub $72, %rsp\n .cfi_def_cfa_offset 96\n"
	"lea 1f(%rip), %rbx\n mov %rbx, (%rsp)\n mov %rdi, 8(%rsp)\n xor %ebp, %ebp\n jmp *8(%rsp)\n"
	"1: add $72, %rsp\n .cfi_def_cfa_offset 24\n pop %rbp\n .cfi_def_cfa_offset 16\n"
	"pop %rbx\n .cfi_def_cfa_offset 8\n ret\n .cfi_endproc\n.size interpreter, .-interpreter\n");
__asm__(".text\ngenerated_begin:\n sub %rsi, %rsp\n 1: sub $1, %rdx\n jnz 1b\n add %rsi, %rsp\n jmp *(%rsp)\n"
	"generated_end:\n"
	"entered_begin:\n sub %rsi, %rsp\n 1: sub $1, %rdx\n jnz 1b\n add %rsi, %rsp\n pop %rcx\n jmp *%rcx\n"
	"entered_end:\n");

extern void interpreter(void *code, long room, long turns);
extern char generated_begin[], generated_end[], entered_begin[], entered_end[];
void (*volatile pointer)(void *, long, long) = interpreter;

FRAME void directly(void *code)
{
	interpreter(code, 0, 300000);
	interpreter(code, 16, 300000);
	KEEP();
}

FRAME void through_pointer(void *code)
{
	pointer(code, 0, 300000);
	pointer(code, 16, 300000);
	KEEP();
}

FRAME int left_behind(int n)
{
	int below = n ? left_behind(n - 1) : 0;

	ESCAPE(&below);
	return below + n;
}

FRAME void enter(void *code)
{
	void (*run)(void *, long, long) = (void (*)(void *, long, long))code;

	left_behind(20);
	run(code, 400, 300000);
	KEEP();
}

int main(int argc, char **argv)
{
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	chain_begin(argc, argv);
	chain_busy = 1;
	if (argc > 2 && strcmp(argv[2], "entered") == 0) {
		memcpy(code, entered_begin, entered_end - entered_begin);
		while (!chain_over)
			enter(code);
	}
	memcpy(code, generated_begin, generated_end - generated_begin);
	while (!chain_over) {
		if (argc > 2 && strcmp(argv[2], "pointer") == 0)
			through_pointer(code);
		else
			directly(code);
	}
	return 0;
}
