/* mapped TIMES WHAT: generates code, says "ready", waits for a line, touches a fresh page TIMES by that code, says
 * "done", and waits for the end of its input. Names of the code are written to /tmp/perf-PID.map, with the PID that it
 * sees, unless WHAT is "none"; with "gone" the map is removed at the end, and with "stranger" it is another user's. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* push %rbp; mov %rsp, %rbp; movb $1, (%rdi); pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xc6, 0x07, 0x01, 0x5d, 0xc3};

int main(int argc, char **argv)
{
	int times = argc > 2 ? atoi(argv[1]) : 0;
	const char *what = argc > 2 ? argv[2] : "";
	char name[64], c;
	unsigned char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *pages = mmap(NULL, (size_t)times * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || pages == MAP_FAILED)
		return 1;
	madvise(pages, (size_t)times * PAGE, MADV_NOHUGEPAGE);
	memcpy(at, code, sizeof code);
	snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
	if (strcmp(what, "none")) {
		FILE *f = fopen(name, "w");

		if (!f)
			return 1;
		fprintf(f, "not a line\n%lx %zx generated_one\n", (long)at, sizeof code);
		if (!strcmp(what, "stranger") && fchown(fileno(f), 12345, -1))
			return 1;
		fclose(f);
	}
	puts("ready");
	fflush(stdout);
	if (read(0, &c, 1) < 1)
		return 1;
	for (int i = 0; i < times; i++)
		((void (*)(char *))at)(pages + (long)i * PAGE);
	puts("done");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	if (!strcmp(what, "gone"))
		unlink(name);
	return 0;
}
