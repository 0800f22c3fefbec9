/* A task made by clone on a stack from mmap, in its parent's memory. */
#include "chain.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

FRAME int cloned_leaf(int n)
{
	spin();
	return n + 1;
}

FRAME int cloned_entry(void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int r = cloned_leaf(arg != NULL);
	KEEP();
	return r == -1;
}

int main(int argc, char **argv)
{
	const size_t size = 1 << 16;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	chain_begin(argc, argv);
	chain_say("thread cloned_entry cloned_leaf");
	pid_t child = clone(cloned_entry, stack + size, CLONE_VM | SIGCHLD, NULL);
	while (waitpid(child, NULL, 0) < 0)
		;
	return 0;
}
