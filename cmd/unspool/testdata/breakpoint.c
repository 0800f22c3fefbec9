/* Calls a function 50 times and writes to a variable 20 times, for each argument
 * in the way that it names: "main" by itself, "threads" in two threads, "child"
 * in a child. "faults" touches 100 pages that nobody has touched before. */
#include "chain.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define CALLS 50
#define WRITES 20
#define PAGES 100

/* It is in a page of the file, so that the kernel does not clear it, and has eight
 * bytes for itself. */
__attribute__((aligned(8))) volatile int watched[2] = {1, 1};

FRAME void called(void)
{
	KEEP();
}

FRAME void caller(void)
{
	for (int i = 0; i < CALLS; i++) {
		called();
		if (i < WRITES)
			watched[0] = i;
	}
	KEEP();
}

FRAME void *thread(void *unused)
{
	caller();
	KEEP();
	return unused;
}

/* It is aligned so that all of its code is in one page. */
__attribute__((aligned(64))) FRAME void touch(char *pages, long size, long count)
{
	for (long i = 0; i < count; i++)
		*(volatile char *)(pages + i * size) = 1;
	KEEP();
}

static int faults(void)
{
	long size = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, PAGES * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* One fault may not bring several pages. The call fails if the kernel has no huge pages. */
	if (pages == MAP_FAILED)
		return 1;
	madvise(pages, PAGES * size, MADV_NOHUGEPAGE);
	touch(pages, size, 0); /* its code has its page from now on */
	touch(pages, size, PAGES);
	return 0;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "main") == 0) {
			caller();
		} else if (strcmp(argv[i], "threads") == 0) {
			pthread_t threads[2];

			for (int n = 0; n < 2; n++)
				if (pthread_create(&threads[n], NULL, thread, NULL) != 0)
					return 1;
			for (int n = 0; n < 2; n++)
				pthread_join(threads[n], NULL);
		} else if (strcmp(argv[i], "child") == 0) {
			int status;
			pid_t pid = fork();

			if (pid == 0) {
				caller();
				_exit(0);
			}
			if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
				return 1;
		} else if (faults() != 0) {
			return 1;
		}
	}
	return 0;
}
