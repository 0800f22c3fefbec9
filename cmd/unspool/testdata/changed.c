// Does the same work N times, in functions of which a change (-DCHANGED) made one slower and removed another.
#include <stdlib.h>

static volatile unsigned long sink;

__attribute__((noipa)) void changed_mix(void)
{
	unsigned long x = 1;
	for (int i = 0; i < 20000; i++)
		x = (x * 6364136223846793005ul + i) ^ x >> 17;
	sink += x;
}

__attribute__((noipa)) void changed_pack(void)
{
	unsigned long x = 3;
#ifdef CHANGED
	int rounds = 40000;
#else
	int rounds = 10000;
#endif
	for (int i = 0; i < rounds; i++)
		x = ((x << 7 | x >> 57) + i) ^ x >> 31;
	sink += x;
}

#ifndef CHANGED
__attribute__((noipa)) void changed_gone(void)
{
	unsigned long x = 1;
	for (int i = 0; i < 8000; i++)
		x = (x * 31 + i) ^ x >> 3;
	sink += x;
}
#endif

__attribute__((noipa)) void changed_step(void)
{
	changed_mix();
	changed_pack();
#ifndef CHANGED
	changed_gone();
#endif
	sink++; // no tail call
}

int main(int argc, char **argv)
{
	for (int n = argc > 1 ? atoi(argv[1]) : 1; n > 0; n--)
		changed_step();
	return 0;
}
