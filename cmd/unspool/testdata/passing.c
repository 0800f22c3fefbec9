/* Starts as many threads as argv[1] says, "=N", one after the other and four of them at most, each of which is named,
 * touches one page in passing_work, and is gone. */
#include "chain.h"
#include <pthread.h>
#include <semaphore.h>

static sem_t slots;
static char *pages;

FRAME void passing_work(char *page)
{
	*page = 1;
	KEEP();
}

FRAME void *passing_entry(void *arg)
{
	size_t n = (size_t)arg;
	char name[16];

	snprintf(name, sizeof name, "worker-%u", (unsigned)n % 100000);
	pthread_setname_np(pthread_self(), name);
	passing_work(pages + n * CHAIN_PAGE);
	sem_post(&slots);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_attr_t detached;

	chain_begin(argc, argv);
	pages = (char *)chain_page;
	sem_init(&slots, 0, 4);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	for (long i = 0; i < chain_left; i++) {
		pthread_t t;

		while (sem_wait(&slots) != 0)
			;
		if (pthread_create(&t, &detached, passing_entry, (void *)i) != 0) {
			perror("passing: pthread_create");
			return 1;
		}
	}
	for (int i = 0; i < 4; i++)
		while (sem_wait(&slots) != 0)
			;
	return 0;
}
