/* What a program needs that has no libc: a start with CFI, by which every unwinder knows the root, system calls, and
 * page faults to be counted. */
#ifndef BARE_H
#define BARE_H

#define FRAME __attribute__((noinline, noclone, used))
#define KEEP() __asm__ volatile("" ::: "memory")

#ifdef __cplusplus
extern "C"
#endif
int bare_main(long argc, char **argv, char **environment);

__asm__(".globl _start\n.type _start, @function\n"
	"_start:\n.cfi_startproc\n.cfi_undefined rip\n"
	"xor %ebp, %ebp\nmov (%rsp), %rdi\nlea 8(%rsp), %rsi\nlea 16(%rsp,%rdi,8), %rdx\nand $-16, %rsp\n"
	"call bare_main\nmov %eax, %edi\nmov $231, %eax\nsyscall\nhlt\n"
	".cfi_endproc\n.size _start, . - _start\n");

static inline long bare_call(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

static inline long bare_number(const char *text)
{
	long n = 0;

	while (*text >= '0' && *text <= '9')
		n = n * 10 + *text++ - '0';
	return n;
}

/* Fewer than make a large page, for which one fault is taken. */
#define BARE_PAGES 300
static volatile char bare_pages[BARE_PAGES][4096] __attribute__((aligned(4096)));
static int bare_touched;

static inline __attribute__((always_inline)) void bare_touch(void)
{
	bare_pages[bare_touched++ % BARE_PAGES][0] = 1;
}

#endif
