/* Touches a page, then executes another program that does the same, and that one this:
 * execs TIMES OTHER [fixed]. With "fixed" addresses are not randomized, so that stacks
 * are where those of the program before were. NAME begins the names of the functions. */
#include "chain.h"
#include <sys/personality.h>

#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define WORK NAMED(NAME, _work)
#define EXECUTE NAMED(NAME, _execute)

FRAME void WORK(volatile char *page)
{
	*page = 1;
}

FRAME void EXECUTE(char *self, int times, char *other)
{
	char left[16];
	char *argv[] = {other, left, self, NULL};

	snprintf(left, sizeof left, "%d", times - 1);
	WORK(mmap(NULL, CHAIN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (times > 1)
		execv(other, argv);
	KEEP();
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (argc > 3)
		personality(ADDR_NO_RANDOMIZE);
	EXECUTE(argv[0], atoi(argv[1]), argv[2]);
	KEEP();
	return 0;
}
