/* Forks children one after the other that touch a page each, end, and never exec; with "vfork" as argv[2] they
 * do so on their parent's stack. */
#include "chain.h"
#include <sys/wait.h>

FRAME void forks_leaf(volatile char *page)
{
	*page = 1;
}

FRAME void forks_child(void)
{
	forks_leaf(chain_page);
	KEEP();
}

FRAME void forks_loop(int shared)
{
	while (chain_left > 0) {
		pid_t child = shared ? vfork() : fork();

		if (child == 0) {
			forks_child();
			_exit(0);
		}
		while (waitpid(child, NULL, 0) < 0)
			;
		chain_left--;
		chain_page += CHAIN_PAGE;
	}
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main forks_loop forks_child forks_leaf");
	forks_loop(argc > 2 && strcmp(argv[2], "vfork") == 0);
	KEEP();
	return 0;
}
