/* Calls generated code that makes no frame, by a function that has no frame pointer, below one that has. Where
 * nobody can read the generated code, BP leads past the function between. */
#include "chain.h"
#include <sys/mman.h>

static long (*stub)(long);

FRAME __attribute__((optimize("omit-frame-pointer"))) long between(long n)
{
	long r = stub(n);

	KEEP();
	return r;
}

FRAME __attribute__((optimize("no-omit-frame-pointer"))) long has_pointer(long n)
{
	long r = between(n);

	KEEP();
	return r;
}

int main(int argc, char **argv)
{
	/* mov %rdi, %rax; 1: sub $1, %rax; jnz 1b; ret */
	static const unsigned char code[] = "\x48\x89\xf8\x48\x83\xe8\x01\x75\xfa\xc3";
	char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long r = 0;

	if (at == MAP_FAILED)
		return 1;
	memcpy(at, code, sizeof code);
	stub = (long (*)(long))(void *)at;
	chain_begin(argc, argv);
	chain_busy = 1;
	while (!chain_over)
		r += has_pointer(100000);
	return r == 1;
}
