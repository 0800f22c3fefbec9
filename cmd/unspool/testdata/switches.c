/* Two processes that wake each other for argv[1] seconds, with 12 KiB of stack each, as PostgreSQL's backends have. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __attribute__((noinline)) int take_turns(int in, int out, int first)
{
	volatile char frame[12000];
	char c = 0;

	memset((char *)frame, 1, sizeof frame);
	if (first)
		write(out, &c, 1);
	while (read(in, &c, 1) == 1)
		write(out, &c, 1);
	return frame[5];
}

int main(int argc, char **argv)
{
	int to[2], from[2];
	pid_t other;

	if (argc < 2 || pipe(to) || pipe(from) || (other = fork()) < 0)
		return 1;
	alarm(atoi(argv[1]));
	signal(SIGALRM, SIG_DFL);
	return other ? take_turns(from[0], to[1], 1) : take_turns(to[0], from[1], 0);
}
