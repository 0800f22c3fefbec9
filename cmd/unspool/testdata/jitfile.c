/* Generates code into a file, as runtimes do that map it twice: to be written, and to be run. argv[2] is the
 * file, or "memfd". It maps a page more of it now and then, and writes to the file all the time. */
#include "chain.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 64 };

FRAME void jitfile_leaf(long n)
{
	while (n-- > 0 && chain_again())
		KEEP();
}

/* A frame with a frame pointer: push %rbp; mov %rsp, %rbp; call *%rsi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};

FRAME void jitfile_run(char *at)
{
	((void (*)(long, void (*)(long)))(void *)at)(1, jitfile_leaf);
	KEEP();
}

int main(int argc, char **argv)
{
	const char *name = argc > 2 ? argv[2] : "memfd";
	int file = strcmp(name, "memfd") ? open(name, O_RDWR | O_CREAT | O_TRUNC, 0700) : memfd_create("jit", 0);
	char *written;

	if (file < 0 || ftruncate(file, PAGES * PAGE))
		return 1;
	written = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (written == MAP_FAILED)
		return 1;
	chain_begin(argc, argv);
	/* The first page is mapped, and the file opened by who attaches, while nothing is written. */
	char *run = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, PAGE);
	chain_say("main main jitfile_run ? jitfile_leaf");
	for (int i = 0; chain_left > 0 && i < PAGES - 1; i++) {
		off_t at = (i + 1) * PAGE;

		if (i > 0)
			run = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, at);
		if (run == MAP_FAILED || pwrite(file, code, sizeof code, at) != sizeof code)
			return 1;
		for (int j = 0; j < 4; j++) {
			written[at + PAGE / 2 + j] = (char)j;
			jitfile_run(run);
		}
	}
	raise(SIGSTOP);
	return 0;
}
