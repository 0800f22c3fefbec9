// Sorts and looks up words: the same work each time. The argument is how often.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 20000 };

struct tree {
	struct tree *less, *more;
	const char *word;
	long count;
};

static char words[WORDS][16];
static struct tree nodes[WORDS];
static int used;

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static struct tree *insert(struct tree *t, const char *word)
{
	if (!t) {
		t = &nodes[used++];
		*t = (struct tree){.word = word, .count = 1};
		return t;
	}
	int c = strcmp(word, t->word);
	if (c < 0)
		t->less = insert(t->less, word);
	else if (c > 0)
		t->more = insert(t->more, word);
	else
		t->count++;
	return t;
}

static long sum(const struct tree *t, int depth)
{
	return t ? sum(t->less, depth + 1) + t->count * depth + sum(t->more, depth + 1) : 0;
}

static long round_of(int n)
{
	static char *sorted[WORDS];
	for (int i = 0; i < WORDS; i++) {
		snprintf(words[i], sizeof words[i], "word%u", (i * 7919u + n) % 5000);
		sorted[i] = words[i];
	}
	struct tree *t = NULL;
	used = 0;
	for (int i = 0; i < WORDS; i++)
		t = insert(t, words[i]);
	qsort(sorted, WORDS, sizeof *sorted, compare);
	return sum(t, 0) + sorted[n % WORDS][4];
}

int main(int argc, char **argv)
{
	long total = 0;
	for (int n = argc > 1 ? atoi(argv[1]) : 100; n > 0; n--)
		total += round_of(n);
	printf("%ld\n", total);
}
