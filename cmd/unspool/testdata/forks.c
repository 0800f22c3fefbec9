/* Forks children one after the other that work for three milliseconds each and
 * never exec; with "vfork" as argv[2] they do so on their parent's stack. */
#include "chain.h"
#include <sys/wait.h>
#include <time.h>

FRAME void forks_leaf(void)
{
	for (int i = 0; i < 20000; i++)
		KEEP();
}

FRAME void forks_child(void)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		forks_leaf();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 3000000);
	KEEP();
}

FRAME void forks_loop(int shared)
{
	while (!chain_over) {
		pid_t child = shared ? vfork() : fork();

		if (child == 0) {
			forks_child();
			_exit(0);
		}
		while (waitpid(child, NULL, 0) < 0)
			;
	}
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main forks_loop forks_child forks_leaf");
	forks_loop(argc > 2 && strcmp(argv[2], "vfork") == 0);
	KEEP();
	return 0;
}
