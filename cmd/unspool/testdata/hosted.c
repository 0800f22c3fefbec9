/* An interpreter that jumps to code that it has generated, which runs on the interpreter's frame and jumps
 * back, as PHP's does. With "pointer" as the second argument it is called through a pointer; with "entered"
 * there is none: code that nobody can read is called, and has on its stack what others have left there. The code
 * touches the pages of which chain.h tells, half of them each time it runs. */
#include "chain.h"
#include <sys/mman.h>

/* interpreter(code, room, turns, page): its frame has 72 bytes. The code makes room for itself below. */
__asm__(".text\n.globl interpreter\n.type interpreter, @function\ninterpreter:\n"
	".cfi_startproc\n push %rbx\n .cfi_def_cfa_offset 16\n .cfi_offset rbx, -16\n"
	"push %rbp\n .cfi_def_cfa_offset 24\n .cfi_offset rbp, -24\n"
	"sub $72, %rsp\n .cfi_def_cfa_offset 96\n"
	"lea 1f(%rip), %rbx\n mov %rbx, (%rsp)\n mov %rdi, 8(%rsp)\n xor %ebp, %ebp\n jmp *8(%rsp)\n"
	"1: add $72, %rsp\n .cfi_def_cfa_offset 24\n pop %rbp\n .cfi_def_cfa_offset 16\n"
	"pop %rbx\n .cfi_def_cfa_offset 8\n ret\n .cfi_endproc\n.size interpreter, .-interpreter\n");
#define TOUCH "1: movb $1, (%rcx)\n add $4096, %rcx\n sub $1, %rdx\n jnz 1b\n"
__asm__(".text\ngenerated_begin:\n sub %rsi, %rsp\n" TOUCH "add %rsi, %rsp\n jmp *(%rsp)\n"
	"generated_end:\n"
	"entered_begin:\n sub %rsi, %rsp\n" TOUCH "add %rsi, %rsp\n pop %rcx\n jmp *%rcx\n"
	"entered_end:\n");

extern void interpreter(void *code, long room, long turns, volatile char *page);
extern char generated_begin[], generated_end[], entered_begin[], entered_end[];
void (*volatile pointer)(void *, long, long, volatile char *) = interpreter;

FRAME void directly(void *code, long half, volatile char *page, volatile char *later)
{
	interpreter(code, 0, half, page);
	interpreter(code, 16, half, later);
	KEEP();
}

/* The pointer is read right before the call. */
FRAME void through_pointer(void *code, long half, volatile char *page, volatile char *later)
{
	ESCAPE(later);
	pointer(code, 0, half, page);
	ESCAPE(later);
	pointer(code, 16, half, later);
	KEEP();
}

FRAME int left_behind(int n)
{
	int below = n ? left_behind(n - 1) : 0;

	ESCAPE(&below);
	return below + n;
}

FRAME void enter(void *code, long half, volatile char *page, volatile char *later)
{
	void (*run)(void *, long, long, volatile char *) = (void (*)(void *, long, long, volatile char *))code;

	left_behind(20);
	run(code, 400, half, page);
	run(code, 400, half, later);
	KEEP();
}

int main(int argc, char **argv)
{
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *how = argc > 2 ? argv[2] : "";

	chain_begin(argc, argv);
	long half = chain_left / 2;
	volatile char *later = chain_page + half * CHAIN_PAGE;

	if (strcmp(how, "entered") == 0) {
		memcpy(code, entered_begin, entered_end - entered_begin);
		chain_say("main main enter ?");
		enter(code, half, chain_page, later);
	} else {
		memcpy(code, generated_begin, generated_end - generated_begin);
		chain_say("main main ? interpreter ?");
		if (strcmp(how, "pointer") == 0)
			through_pointer(code, half, chain_page, later);
		else
			directly(code, half, chain_page, later);
	}
	raise(SIGSTOP);
	return 0;
}
