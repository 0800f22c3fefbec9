/* Is as dear to unwind as it can be made: "expressions" has 500 frames whose CFA a loop computes, "programs" runs
 * through functions with 60,000 bytes of call frame instructions, "mappings" maps code at random addresses, "names"
 * renames its thread all the time, "files" has the files 0, 1, … of a directory mapped as code, as many as there are,
 * "code" runs through functions without CFI whose paths meet again and again, and whose switches lead to more of them,
 * "stacks" has two processes more, on whose stacks, behind what is copied, are pages that nobody gets.
 */
#define _GNU_SOURCE
#include "chain.h"
#include <alloca.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__asm__(".pushsection .text\n"
	".type loops, @function\n"
	"loops:\n"
	".cfi_startproc\n"
	/* DW_CFA_def_cfa_expression, 912 bytes: breg7 16, const2u 2000, and until that is 0: lit1, minus, dup, bra */
	".cfi_escape 0x0f, 0x90, 0x07, 0x77, 0x10, 0x0a, 0xd0, 0x07, 0x31, 0x1c, 0x12, 0x28, 0xfa, 0xff, 0x13\n"
	".rept 900\n .cfi_escape 0x96\n .endr\n"
	"sub $8, %rsp\n"
	"dec %rdi\n"
	"jz 1f\n"
	"call loops\n"
	"add $8, %rsp\n"
	"ret\n"
	"1: mov $100000000, %rcx\n"
	"cmpq $0, chain_page(%rip)\n"
	"je 2f\n"
	"mov chain_page(%rip), %rcx\n"
	"movb $1, (%rcx)\n"
	"mov $1, %ecx\n"
	"2: dec %rcx\n"
	"jnz 2b\n"
	"add $8, %rsp\n"
	"ret\n"
	".cfi_endproc\n"
	".type programs, @function\n"
	"programs:\n"
	".cfi_startproc\n"
	".rept 30000\n .cfi_remember_state\n .cfi_restore_state\n .endr\n"
	"nop\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_adjust_cfa_offset -8\n"
	".rept 20000\n nop\n .endr\n"
	"mov chain_page(%rip), %rax\n"
	"test %rax, %rax\n"
	"je 1f\n"
	"movb $1, (%rax)\n"
	"1: ret\n"
	".cfi_endproc\n"
	".popsection\n");

/* A function that sets registers to SP and has 16,000 pushes and pops; ways back to these set registers to something else,
 * and eight switches, each of which is found once the one before it is, lead to the end. None of these is ever gone. */
__asm__(".macro table f i j\n"
	"t\\f\\()_\\i:\n"
	"and $1, %esi\n"
	"lea l\\f\\()_\\i(%rip), %rdi\n"
	"movslq (%rdi,%rsi,4), %rax\n"
	"add %rdi, %rax\n"
	"jmp *%rax\n"
	".pushsection .rodata\n"
	"l\\f\\()_\\i: .long t\\f\\()_\\j - l\\f\\()_\\i, t\\f\\()_\\j - l\\f\\()_\\i\n"
	".popsection\n"
	".endm\n"
	".macro slow f\n"
	".p2align 4\n"
	".type slow\\f, @function\n"
	"slow\\f:\n"
	"endbr64\n"
	".irp r, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11\n"
	"mov %rsp, %\\r\n"
	".endr\n"
	"1: .fill 8000, 2, 0x5950\n"
	"clc\n"
	".irp r, eax, ecx, edx\n"
	"jnc 2f\n"
	"mov $1, %\\r\n"
	"jmp 1b\n"
	"2:\n"
	".endr\n"
	"jc t\\f\\()_1\n"
	"ret\n"
	"table \\f 1 2\ntable \\f 2 3\ntable \\f 3 4\ntable \\f 4 5\ntable \\f 5 6\ntable \\f 6 7\ntable \\f 7 8\n"
	"table \\f 8 9\n"
	"t\\f\\()_9: ret\n"
	".endm\n"
	".macro next\n slow \\@\n .endm\n"
	".pushsection .text\n"
	".p2align 4\n"
	"code:\n"
	".rept 300\n next\n .endr\n"
	".p2align 4\n"
	"code_end:\n"
	".popsection\n");

void loops(long depth);
void programs(void);
extern char code[], code_end[];

static void call(void *function)
{
	((void (*)(void))function)();
}

static void run_code(void)
{
	for (int i = 0; i < 300; i++)
		call(code + i * (code_end - code) / 300);
}

static void mappings(void)
{
	static unsigned long x = 88172645463325252UL;

	for (int i = 0; i < 1000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		char *p = (char *)0x100000000000UL + x % 1000000 * 8192;
		if (mmap(p, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == p)
			munmap(p, 4096);
	}
}

static void names(void)
{
	static int n;
	char name[] = "aaaaaaaaaaaaaaa";

	name[0] += n++ % 26;
	prctl(PR_SET_NAME, name);
}

static void files(const char *folder)
{
	static int mapped, all;
	char name[4096];

	snprintf(name, sizeof name, "%s/%d", folder, mapped);
	int fd = all ? -1 : open(name, O_RDONLY);
	if (fd < 0) {
		all = 1;
		for (volatile int i = 0; i < 1000000; i++)
			;
		return;
	}
	mapped++;
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		exit(1);
	close(fd);
}

/* The pages from 48 KiB on, right behind small copies, are userfaultfd's, which nobody answers. They are a mapping
 * of their own, where reads end of a stack of which nothing is known, so its whole is seen before. */
static void stacks(void)
{
	enum { page = 4096, copied = 48 << 10, size = 512 << 10, seen_ms = 300 };
	static int begun;

	for (int i = 0; i < 2 && !begun; i++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			break;
		}
	begun = 1;
	struct timespec from, now;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (!chain_over && (now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < seen_ms);
	char *frame = alloca(size);
	memset(frame, 1, copied);
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(SYS_userfaultfd, 0);
	struct uffdio_register range = {
		.range = { ((unsigned long)frame + copied + page) & -page, size - copied - 2 * page },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &range) < 0)
		exit(1);
	while (!chain_over)
		__asm__ volatile("" : : "r"(frame) : "memory");
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	if (chain_waits)
		chain_say("main ?");
	while (chain_page ? chain_left > 0 : !chain_over) {
		if (argc > 2 && strcmp(argv[2], "expressions") == 0)
			loops(500);
		else if (argc > 2 && strcmp(argv[2], "programs") == 0)
			programs();
		else if (argc > 2 && strcmp(argv[2], "names") == 0)
			names();
		else if (argc > 3 && strcmp(argv[2], "files") == 0)
			files(argv[3]);
		else if (argc > 2 && strcmp(argv[2], "code") == 0)
			run_code();
		else if (argc > 2 && strcmp(argv[2], "stacks") == 0)
			stacks();
		else
			mappings();
		/* One page each time, at the deepest place if that has no faults of its own. */
		if (chain_page) {
			*chain_page = 1;
			chain_page += CHAIN_PAGE;
			chain_left = chain_left - 1;
		}
	}
	return 0;
}
