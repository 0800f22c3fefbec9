/* Moves a page of its code to another address again and again, of which the kernel tells nobody. There it touches the
 * pages that chain.h counts, five at each place, and stops. */
#include "chain.h"
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>

/* Without a name for anything outside: it runs wherever it lies. */
FRAME __attribute__((section("moved"), aligned(4096))) long moves_leaf(long n, volatile char *page)
{
	for (; n > 0; n--, page += CHAIN_PAGE)
		*page = 1;
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
	chain_say("main main moves_leaf");
	for (int i = 0; chain_left > 0; i++) {
		code = mremap(code, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, room + 2 * i * page);
		if (code == MAP_FAILED)
			return 1;
		r += ((long (*)(long, volatile char *))(void *)code)(5, chain_page);
		chain_left -= 5;
		chain_page += 5 * CHAIN_PAGE;
		raise(SIGSTOP);
	}
	return r == 1;
}
