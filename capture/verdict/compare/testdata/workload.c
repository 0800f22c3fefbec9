/* Sorts, copies and searches, each with its own code, in memory that nobody has touched: once, so that
 * each has its page faults, in the midst of its loop. */
#include "start.h"

typedef unsigned long size;

enum { items = 1 << 14, text_size = 1 << 16 };

static unsigned numbers[items], copy[items];
static char text[text_size], empty[text_size];
static volatile unsigned long total;

FRAME void *memcpy(void *to, const void *from, size n)
{
	LEAF();
	char *d = to;
	const char *s = from;

	while (n--) {
		*d++ = *s++;
		KEEP();
	}
	return to;
}

FRAME size strlen(const char *s)
{
	LEAF();
	size n = 0;

	while (s[n]) {
		n++;
		KEEP();
	}
	return n;
}

FRAME unsigned fill(unsigned seed)
{
	LEAF();
	for (int i = 0; i < items; i++)
		numbers[i] = seed = seed * 1664525u + 1013904223u;
	for (int i = 0; i < text_size - 1; i++)
		text[i] = 'a' + (seed + i) % 26;
	return seed;
}

FRAME void insertion_sort(unsigned *a, int n)
{
	LEAF();
	for (int i = 1; i < n; i++) {
		unsigned x = a[i];
		int j = i;
		for (; j > 0 && a[j - 1] > x; j--)
			a[j] = a[j - 1];
		a[j] = x;
	}
}

FRAME void merge(unsigned *a, int half, int n, unsigned *room)
{
	int i = 0, j = half, k = 0;

	while (i < half && j < n)
		room[k++] = a[i] <= a[j] ? a[i++] : a[j++];
	while (i < half)
		room[k++] = a[i++];
	memcpy(a, room, k * sizeof *a);
}

FRAME void sort(unsigned *a, int n, unsigned *room)
{
	if (n <= 256) {
		insertion_sort(a, n);
		return;
	}
	sort(a, n / 2, room);
	sort(a + n / 2, n - n / 2, room);
	merge(a, n / 2, n, room);
}

FRAME unsigned hash(const char *s, size n)
{
	LEAF();
	unsigned h = 2166136261u;

	for (size i = 0; i < n; i++)
		h = (h ^ s[i]) * 16777619u;
	return h;
}

FRAME unsigned words(void)
{
	return hash(text, strlen(text)) + hash(empty, sizeof empty);
}

FRAME void round_of_all(unsigned *seed)
{
	*seed = fill(*seed);
	memcpy(copy, numbers, sizeof copy);
	static unsigned room[items];
	sort(copy, items, room);
	total += copy[items / 2];
	total += words();
}

int start(long argc, char **argv)
{
	unsigned seed = argc + argv[0][0];

	round_of_all(&seed);
	KEEP();
	return 0;
}
