/* Moves its code to anonymous memory, fit for huge pages, before it runs its chain:
 * with "map" as argv[2] it maps memory over the code and copies it back, as node
 * does; with "move" it prepares a copy and moves it to where the code is, of which
 * the kernel tells nobody; with "memfd" the memory is that of a file without a path, as
 * huge pages are that are shared, and with "file" that of one that it has unlinked. */
#include "chain.h"
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define OUTSIDE __attribute__((noinline, section("outside"), aligned(4096)))

FRAME OUTSIDE static long call6(long n, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = 0;

	__asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return n;
}

/* Runs outside of the code that it replaces, and calls none of it. */
FRAME OUTSIDE static void map_over(char *code, char *copy, long size, int fd)
{
	char *to = code, *from = copy;
	long n = size;

	call6(SYS_mmap, (long)code, size, PROT_READ | PROT_WRITE | PROT_EXEC, (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_FIXED, fd);
	call6(SYS_madvise, (long)code, size, MADV_HUGEPAGE, 0, 0);
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	call6(SYS_mprotect, (long)code, size, PROT_READ | PROT_EXEC, 0, 0);
}

static char *code;
static long size;

static int find_code(struct dl_phdr_info *info, size_t n, void *outside)
{
	(void)n;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			code = (char *)((info->dlpi_addr + p->p_vaddr) & -4096ul);
			size = (char *)outside - code;
			return 1;
		}
	}
	return 0;
}

FRAME void huge_leaf(void)
{
	spin();
}

FRAME void huge_work(int n)
{
	huge_leaf();
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	uintptr_t outside = (uintptr_t)call6 < (uintptr_t)map_over ? (uintptr_t)call6 : (uintptr_t)map_over;

	dl_iterate_phdr(find_code, (void *)outside);
	if (size <= 0 || size & 4095)
		return 1;
	char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(copy, code, size);
	if (argc > 2 && strcmp(argv[2], "map") == 0) {
		map_over(code, copy, size, -1);
	} else if (argc > 2 && (strcmp(argv[2], "memfd") == 0 || strcmp(argv[2], "file") == 0)) {
		char name[] = "/tmp/hugeXXXXXX";
		int fd = argv[2][0] == 'm' ? memfd_create("code", 0) : mkstemp(name);

		unlink(name);
		if (fd < 0 || ftruncate(fd, size) < 0)
			return 1;
		map_over(code, copy, size, fd);
	} else {
		mprotect(copy, size, PROT_READ | PROT_EXEC);
		if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, code) == MAP_FAILED)
			return 1;
	}
	chain_begin(argc, argv);
	chain_say("main main huge_work huge_leaf");
	huge_work(3);
	KEEP();
	if (chain_waits)
		raise(SIGSTOP);
	return 0;
}
