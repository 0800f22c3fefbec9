/* Three threads work. Then one that is not the first executes the program anew, which ends the others and takes
 * the first one's ID. */
#include "chain.h"
#include <pthread.h>

static pthread_barrier_t working;

FRAME void before_leaf(void)
{
	char *page = mmap(NULL, CHAIN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*page = 1;
	pthread_barrier_wait(&working);
	for (;;)
		KEEP();
}

FRAME void *before_thread(void *arg)
{
	(void)arg;
	before_leaf();
	KEEP();
	return NULL;
}

FRAME void *executes(void *arg)
{
	char **argv = arg;
	char *again[] = {argv[0], argv[1], "again", NULL};

	pthread_barrier_wait(&working);
	execv("/proc/self/exe", again);
	_exit(1);
}

FRAME int after_leaf(int n)
{
	spin();
	return n + 1;
}

int main(int argc, char **argv)
{
	pthread_t t;

	chain_begin(argc, argv);
	if (argc > 2) {
		chain_say("main main after_leaf");
		int r = after_leaf(argc);
		KEEP();
		return r == -1;
	}
	pthread_barrier_init(&working, NULL, 4);
	for (int i = 0; i < 2; i++)
		pthread_create(&t, NULL, before_thread, NULL);
	pthread_create(&t, NULL, executes, argv);
	before_leaf();
	KEEP();
	return 1;
}
