/* storm N PROGRAM [ARGUMENT] runs a program N times, five at a time. */
#include "bare.h"

enum { WAIT4 = 61, FORK = 57, EXECVE = 59, EXIT = 60 };

FRAME void storm_start(char **argv, char **environment)
{
	if (bare_call(FORK, 0, 0, 0, 0) == 0) {
		bare_touch();
		bare_call(EXECVE, (long)argv[0], (long)argv, (long)environment, 0);
		bare_call(EXIT, 127, 0, 0, 0);
	}
	KEEP();
}

int bare_main(long argc, char **argv, char **environment)
{
	if (argc < 3)
		return 2;
	for (long started = 0, n = bare_number(argv[1]); started < n; started += 5) {
		for (int i = 0; i < 5; i++)
			storm_start(argv + 2, environment);
		for (int i = 0; i < 5; i++)
			bare_call(WAIT4, -1, 0, 0, 0);
	}
	return 0;
}
