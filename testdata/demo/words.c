/* Callbacks out of libc: qsort and bsearch over words. */
#include "demo.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 6000, LOOKUPS = 12000 };

struct word {
	char text[12];
	uint32_t uses;
};

static VISIBLE int compare_text(const char *a, const char *b)
{
	while (*a != '\0' && *a == *b) {
		a++;
		b++;
	}
	return (unsigned char)*a - (unsigned char)*b;
}

static VISIBLE int by_text(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	return compare_text(x->text, y->text);
}

/* Most used first, equals by text: one comparison calls another. */
static VISIBLE int by_use(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	if (x->uses != y->uses)
		return x->uses < y->uses ? 1 : -1;
	return by_text(a, b);
}

static VISIBLE void make_words(struct word *w, uint32_t *state)
{
	static const char syllables[16][4] = {"ba", "co", "di", "fu", "ga", "ho", "ji", "ku",
					      "la", "mo", "ni", "pu", "ra", "so", "ti", "vu"};

	for (int i = 0; i < WORDS; i++) {
		uint32_t r = demo_random(state);
		w[i].uses = 0;
		w[i].text[0] = '\0';
		for (int s = 0; s < 5; s++, r >>= 4)
			strcat(w[i].text, syllables[r & 15]);
	}
}

static VISIBLE uint64_t count_uses(struct word *w, uint32_t *state)
{
	uint64_t found = 0;

	for (int i = 0; i < LOOKUPS; i++) {
		struct word key = w[demo_random(state) % WORDS], *hit;
		key.text[demo_random(state) % 2] ^= demo_random(state) % 8 == 0;
		hit = bsearch(&key, w, WORDS, sizeof key, by_text);
		if (hit != NULL) {
			hit->uses++;
			found++;
		}
	}
	return found;
}

uint64_t words_round(unsigned seed)
{
	uint32_t state = seed * 2654435761u | 1;
	struct word *w = malloc(WORDS * sizeof *w);
	uint64_t sum;

	if (w == NULL)
		abort();
	make_words(w, &state);
	qsort(w, WORDS, sizeof *w, by_text);
	sum = count_uses(w, &state);
	qsort(w, WORDS, sizeof *w, by_use);
	sum = sum << 16 | w[0].uses << 8 | (unsigned char)w[0].text[0];
	free(w);
	return sum;
}
