/* Starts argv[2] threads a second (default 200) for argv[1] seconds (default 1),
 * each named worker-N and gone after two milliseconds of CPU time, with four of
 * them alive at most. Prints "threads N" at the end. */
#include "chain.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

static sem_t slots;

static long now_ns(clockid_t clock)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

FRAME void threads_leaf(void)
{
	for (int i = 0; i < 20000; i++)
		KEEP();
}

FRAME void threads_work(void)
{
	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < 2000000)
		threads_leaf();
	KEEP();
}

FRAME void *threads_entry(void *arg)
{
	char name[16];

	snprintf(name, sizeof name, "worker-%u", (unsigned)(size_t)arg % 100000);
	pthread_setname_np(pthread_self(), name);
	threads_work();
	sem_post(&slots);
	return NULL;
}

int main(int argc, char **argv)
{
	int rate = chain_arg(argc, argv, 2, 200);
	long step = 1000000000L / (rate > 0 ? rate : 1);
	long next = now_ns(CLOCK_MONOTONIC);
	size_t started = 0;
	pthread_attr_t detached;

	chain_begin(argc, argv);
	sem_init(&slots, 0, 4);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	while (chain_again()) {
		pthread_t t;
		struct timespec until;

		if (sem_wait(&slots) != 0)
			continue;
		if (pthread_create(&t, &detached, threads_entry, (void *)++started) != 0) {
			perror("threads: pthread_create");
			return 1;
		}
		next += step;
		until.tv_sec = next / 1000000000L;
		until.tv_nsec = next % 1000000000L;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	for (int i = 0; i < 4; i++)
		while (sem_wait(&slots) != 0)
			;
	printf("threads %zu\n", started);
	return 0;
}
