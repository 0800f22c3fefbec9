/* Moves a page of its code to another address again and again, of which the kernel tells nobody. */
#include "chain.h"
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

/* Without a name for anything outside: it runs wherever it lies. */
FRAME __attribute__((section("moved"), aligned(4096))) long moves_leaf(long n)
{
	while (n-- > 0)
		KEEP();
	return n;
}

static off_t offset;

static int find_offset(struct dl_phdr_info *info, size_t n, void *arg)
{
	uintptr_t at = (uintptr_t)moves_leaf;

	(void)n;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && at >= start && at - start < p->p_filesz)
			offset = at - start + p->p_offset;
	}
	return 1; /* the program comes first */
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	const size_t page = 4096;
	long r = 0;

	dl_iterate_phdr(find_offset, NULL);
	char *room = mmap(NULL, 200 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *code = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), offset);
	if (room == MAP_FAILED || code == MAP_FAILED)
		return 1;
	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main moves_leaf");
	for (int i = 0; i < 100 && !chain_over; i++) {
		code = mremap(code, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, room + 2 * i * page);
		if (code == MAP_FAILED)
			return 1;
		for (double end = now() + 0.3; now() < end && !chain_over;)
			r += ((long (*)(long))(void *)code)(1000000);
	}
	return r == 1;
}
