/* What the programs here have in common: no C library, so that every function in them
 * is compiled as they are. _start ends the stack for either walk: no return address by its
 * CFI, and BP is 0. Where each is about to be looked at it writes to a page that nobody has touched, TIMES
 * times in all, so that a recording of page faults has as many samples of it; then they end. */
#define TIMES 40
#define PAGE 4096
static char pages[(TIMES + 1) * PAGE];
char *next_page = pages + PAGE;
static inline __attribute__((always_inline)) void touch_page(void)
{
	*(volatile char *)next_page = 1;
	next_page += PAGE;
}

#define FRAME __attribute__((noipa, used))
#define KEEP() __asm__ volatile("" ::: "memory")

/* GCC leaves the frame pointer out of a function that neither calls another nor uses the stack, whatever
 * it is told; not of one that asks for its frame. */
#ifdef EVERYWHERE
#define LEAF() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define LEAF() (void)0
#endif

FRAME int start(long argc, char **argv);

__asm__(".globl _start\n"
	"_start:\n"
	".cfi_startproc\n"
#ifdef __x86_64__
	".cfi_undefined rip\n"
	"xor %ebp, %ebp\n"
	"mov (%rsp), %rdi\n"
	"lea 8(%rsp), %rsi\n"
#else
	".cfi_undefined eip\n"
	"xor %ebp, %ebp\n"
	"mov (%esp), %eax\n"
	"lea 4(%esp), %edx\n"
	"push %edx\n"
	"push %eax\n"
#endif
	"call start\n"
#ifdef __x86_64__
	"mov $60, %eax\n"
	"xor %edi, %edi\n"
	"syscall\n"
#else
	"mov $1, %eax\n"
	"xor %ebx, %ebx\n"
	"int $0x80\n"
#endif
	"hlt\n"
	".cfi_endproc\n");
