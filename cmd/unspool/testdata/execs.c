/* Works for a moment, then executes another program that does the same, and that one this:
 * execs SECONDS OTHER [fixed]. With "fixed" addresses are not randomized, so that stacks
 * are where those of the program before were. NAME begins the names of the functions. */
#include "chain.h"
#include <sys/personality.h>
#include <time.h>

#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define WORK NAMED(NAME, _work)
#define EXECUTE NAMED(NAME, _execute)

static double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

FRAME int WORK(int n)
{
	for (int i = 0; i < 100000; i++)
		KEEP();
	return n;
}

FRAME void EXECUTE(char *self, char *end, char *other)
{
	char *argv[] = {other, end, self, NULL};

	WORK(1);
	execv(other, argv);
	KEEP();
}

int main(int argc, char **argv)
{
	char end[32];

	if (argc < 3)
		return 2;
	if (argc > 3)
		personality(ADDR_NO_RANDOMIZE);
	if (argv[1][0] == '@')
		snprintf(end, sizeof end, "%s", argv[1]);
	else
		snprintf(end, sizeof end, "@%f", now() + atof(argv[1]));
	if (now() < atof(end + 1))
		EXECUTE(argv[0], end, argv[2]);
	return now() < atof(end + 1);
}
