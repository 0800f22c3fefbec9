/* A storm of short-lived processes, as a configure script makes it.
 *
 * storm SECONDS RATE COMMAND... starts RATE processes a second, taking the
 * commands (paths, no arguments) in turn, and waits for all of them. It prints
 * "storm N" with the number of processes that it started and that ended well. */
#include "chain.h"
#include <errno.h>
#include <sys/wait.h>
#include <time.h>

static long now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static long ended_well;

static void reap(int flags)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, flags)) > 0 || (pid < 0 && errno == EINTR))
		if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			ended_well++;
}

FRAME void storm_start(char *command)
{
	pid_t pid = fork();

	if (pid == 0) {
		char *argv[] = {command, NULL};
		execv(command, argv);
		_exit(127);
	}
	if (pid < 0) {
		perror("storm: fork");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: storm SECONDS RATE COMMAND...\n");
		return 2;
	}
	long step = 1000000000L / atoi(argv[2]);
	long start = now_ns();
	long end = start + 1000000000L * atoi(argv[1]);
	long started = 0;

	for (long next = start; next < end; next += step) {
		struct timespec until = {next / 1000000000L, next % 1000000000L};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		storm_start(argv[3 + started++ % (argc - 3)]);
		reap(WNOHANG);
	}
	reap(0);
	printf("storm %ld\n", ended_well);
	return ended_well == started ? 0 : 1;
}
