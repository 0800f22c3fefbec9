/* What the programs here have in common: no C library, so that every function in them
 * is compiled as they are. _start ends the stack for either walk: no return address by its
 * CFI, and BP is 0. They run until they are killed. */
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
	"hlt\n"
	".cfi_endproc\n");
