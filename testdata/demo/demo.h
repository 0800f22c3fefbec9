/* The parts of the demo workload. Each runs one round of its work, some tens of
 * milliseconds of CPU time, and returns a checksum, so that nothing is optimised
 * away and every run of the program prints the same sums for the same rounds. */
#ifndef DEMO_H
#define DEMO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* words.c: sorts words with qsort, looks them up with bsearch. */
uint64_t words_round(unsigned seed);

/* archive.c: packs a file read in blocks (LZ77), unpacks it, compares hashes. */
uint64_t archive_round(unsigned seed);

/* scene.cc: a tree of shapes: virtual calls, recursion, std::sort, exceptions. */
uint64_t scene_round(unsigned seed);

/* rules.cc: a parser and evaluator of small formulas: recursion, std::function. */
uint64_t rules_round(unsigned seed);

/* clock.c: a signal handler that works, on top of whatever it interrupts. */
int clock_start(void);
uint64_t clock_ticks(void);

/* A pseudo-random number in 0..2^31-1; *state is never 0. */
static inline uint32_t demo_random(uint32_t *state)
{
	uint32_t x = *state;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	*state = x;
	return x & 0x7fffffff;
}

#ifdef __cplusplus
}
#endif

/* A function that stays visible in stacks, under its own name: gcc calls clones
 * name.constprop.0 and the like. */
#if defined(__clang__)
#define VISIBLE __attribute__((noinline))
#else
#define VISIBLE __attribute__((noipa))
#endif

#endif
