/* The workload that `make demo` records: four named threads, each with a kind of
 * work of its own, and a signal handler at work on a timer.
 *
 * demo-workload [SECONDS] runs for so many seconds (default 3) and prints one
 * line. It is compiled without frame pointers and without debug information. */
#define _GNU_SOURCE
#include "demo.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct worker {
	const char *name;
	uint64_t (*round)(unsigned seed);
	uint64_t sum;
	unsigned rounds;
	pthread_t thread;
};

static struct worker workers[] = {
	{.name = "words", .round = words_round},
	{.name = "archive", .round = archive_round},
	{.name = "scene", .round = scene_round},
	{.name = "rules", .round = rules_round},
};

enum { WORKERS = sizeof workers / sizeof workers[0] };

static atomic_bool over;

static VISIBLE void *worker_main(void *arg)
{
	struct worker *w = arg;

	pthread_setname_np(pthread_self(), w->name);
	while (!atomic_load(&over)) {
		/* Sixteen seeds over and over: the mixture does not depend on speed. */
		w->sum ^= w->round(1 + w->rounds % 16);
		w->rounds++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
	unsigned rounds = 0;

	if (clock_start() != 0) {
		perror("demo-workload: timer");
		return 1;
	}
	for (int i = 0; i < WORKERS; i++) {
		int err = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
		if (err != 0) {
			fprintf(stderr, "demo-workload: thread %s: %s\n", workers[i].name, strerror(err));
			return 1;
		}
	}

	struct timespec left = {.tv_sec = seconds};
	while (nanosleep(&left, &left) != 0)
		; /* the timer's signal may end it early */
	atomic_store(&over, 1);
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		rounds += workers[i].rounds;
	}
	printf("demo workload: %u rounds in %d threads, %llu timer ticks\n",
	       rounds, WORKERS, (unsigned long long)clock_ticks());
	return 0;
}
