/* The chain runs in a second thread; the first one sleeps in pthread_join. */
#include "chain.h"
#include <pthread.h>

FRAME void thread_leaf(void)
{
	spin();
}

FRAME void thread_work(int n)
{
	thread_leaf();
	ESCAPE(&n);
}

FRAME void *thread_entry(void *arg)
{
	thread_work(*(int *)arg);
	KEEP();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;

	chain_begin(argc, argv);
	chain_say("thread thread_entry thread_work thread_leaf");
	if (pthread_create(&t, NULL, thread_entry, &argc) != 0)
		return 1;
	pthread_join(t, NULL);
	return 0;
}
