/* Calls generated code that makes no frame, by a function that has no frame pointer, below one that has. Where
 * nobody can read the generated code, BP leads past the function between. */
#include "chain.h"
#include <sys/mman.h>

static long (*stub)(volatile char *);

FRAME __attribute__((optimize("omit-frame-pointer"))) long between(volatile char *page)
{
	long r = stub(page);

	KEEP();
	return r;
}

FRAME __attribute__((optimize("no-omit-frame-pointer"))) long has_pointer(volatile char *page)
{
	long r = between(page);

	KEEP();
	return r;
}

int main(int argc, char **argv)
{
	/* movb $1, (%rdi); mov %rdi, %rax; ret */
	static const unsigned char code[] = "\xc6\x07\x01\x48\x89\xf8\xc3";
	char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long r = 0;

	if (at == MAP_FAILED)
		return 1;
	memcpy(at, code, sizeof code);
	stub = (long (*)(volatile char *))(void *)at;
	chain_begin(argc, argv);
	for (; chain_left > 0; chain_left = chain_left - 1, chain_page += CHAIN_PAGE)
		r += has_pointer(chain_page);
	return r == 1;
}
