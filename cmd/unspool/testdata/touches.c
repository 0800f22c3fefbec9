/* Touches pages when it is told to, so that a test decides when there are samples, and how many.
 *
 * It reads lines from its standard input. "N" has each of its threads touch N fresh pages in touches_leaf, each of which
 * is a page fault in user mode and the system call get_robust_list, which hardly anybody calls: as
 * syscalls:sys_enter_get_robust_list it is counted also where the page faults of others are too many. "N DEPTH" does so
 * below so many frames of touches_outer, of which there is one otherwise. "end" ends its threads, but for
 * the first one, "title TEXT" puts TEXT in the place of its arguments, as setproctitle does, and "quit" ends it. Each
 * line is answered when it has been followed, by one line. It also ends with its input.
 *
 * The arguments name its threads (the first thread touches only if there are no others). The first line that it writes is
 * "ready PID TID...", with the IDs of the threads that touch. */
#include "chain.h"
#include <pthread.h>
#include <sys/syscall.h>

#define MOST 16

static struct thread {
	pthread_t thread;
	const char *name;
	int tid;
} threads[MOST];

static pthread_barrier_t told, done;
static long pages, depth;

FRAME int touches_leaf(volatile char *page)
{
	void *head;
	size_t len;
	long r = SYS_get_robust_list;

	*page = 1;
	__asm__ volatile("syscall" : "+a"(r) : "D"(0L), "S"(&head), "d"(&len) : "rcx", "r11", "memory");
	return (int)r;
}

FRAME int touches_outer(volatile char *page, long frames)
{
	int r = frames > 1 ? touches_outer(page, frames - 1) : touches_leaf(page);
	KEEP();
	return r + 1;
}

FRAME int touches_pages(void)
{
	/* Pages of tables are not touched by the program itself. Large pages would take one fault for many. */
	size_t size = (size_t)pages * 4096;
	char *area = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r = 0;

	if (area == (char *)MAP_FAILED) {
		perror("touches: mmap");
		exit(1);
	}
	madvise(area, size, MADV_NOHUGEPAGE);
	for (long i = 0; i < pages; i++)
		r += touches_outer(area + 4096 * i, depth);
	KEEP();
	munmap(area, size);
	return r;
}

FRAME void *touches_thread(void *arg)
{
	struct thread *t = arg;

	pthread_setname_np(pthread_self(), t->name);
	t->tid = (int)syscall(SYS_gettid);
	pthread_barrier_wait(&done);
	for (;;) {
		pthread_barrier_wait(&told);
		if (pages == 0)
			return NULL;
		touches_pages();
		pthread_barrier_wait(&done);
	}
}

int main(int argc, char **argv)
{
	int n = argc - 1;
	char line[256], *last = argv[argc - 1];
	size_t room = (size_t)(last + strlen(last) - argv[0]); /* of all arguments */

	if (n > MOST) {
		fprintf(stderr, "usage: touches [NAME...], at most %d\n", MOST);
		return 2;
	}
	pthread_barrier_init(&told, NULL, (unsigned)n + 1);
	pthread_barrier_init(&done, NULL, (unsigned)n + 1);
	for (int i = 0; i < n; i++) {
		threads[i].name = argv[1 + i];
		if (pthread_create(&threads[i].thread, NULL, touches_thread, &threads[i]) != 0) {
			perror("touches: pthread_create");
			return 1;
		}
	}
	if (n > 0)
		pthread_barrier_wait(&done);
	printf("ready %d", (int)getpid());
	for (int i = 0; i < n; i++)
		printf(" %d", threads[i].tid);
	if (n == 0)
		printf(" %d", (int)getpid());
	printf("\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		depth = 1;
		if (strcmp(line, "end\n") == 0) {
			pages = 0;
			pthread_barrier_wait(&told);
			for (int i = 0; i < n; i++)
				pthread_join(threads[i].thread, NULL);
			n = 0;
		} else if (strncmp(line, "title ", 6) == 0) {
			memset(argv[0], 0, room);
			strncpy(argv[0], line + 6, room);
			argv[0][strcspn(argv[0], "\n")] = 0;
		} else if (strcmp(line, "quit\n") == 0) {
			printf("%s", line);
			break;
		} else if (sscanf(line, "%ld %ld", &pages, &depth) < 1 || pages < 1 || depth < 1) {
			fprintf(stderr, "touches: %s", line);
			return 2;
		} else if (n == 0) {
			touches_pages();
		} else {
			pthread_barrier_wait(&told);
			pthread_barrier_wait(&done);
		}
		printf("%s", line);
		fflush(stdout);
	}
	KEEP();
	return 0;
}
