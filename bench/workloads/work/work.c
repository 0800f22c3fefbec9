// Keeps the C library busy: most of the time is spent in it.
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char text[1 << 16], copy[1 << 16];
static double numbers[2000];

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double once(int seed) {
	size_t n = 0;
	for (int i = 0; i < 2000; i++) {
		numbers[i] = sin(i * 7919 + seed) * pow(10, i % 7);
		n += snprintf(text + n, sizeof text - n, "%.6g word%d ", numbers[i], i);
	}
	qsort(numbers, 2000, sizeof numbers[0], by_value);
	regex_t word;
	if (regcomp(&word, "w[a-z]+99[0-9]", REG_EXTENDED) != 0)
		abort();
	regmatch_t match;
	double sum = regexec(&word, text, 1, &match, 0) == 0 ? match.rm_so : 0;
	regfree(&word);
	for (int i = 0; i < 50; i++) {
		memcpy(copy, text, sizeof copy);
		memmove(copy + 1, copy, sizeof copy - 1);
		memset(copy + n / 2, i + 1, n / 4);
		sum += strlen(copy) + (strstr(text, "word1999 ") - text);
		free(memset(malloc(1000 + i), i, 1000));
	}
	char *end = text;
	for (int i = 0; i < 500; i++) {
		sum += strtod(end, &end);
		end = strchr(end + 1, ' ');
	}
	return sum + sqrt(fabs(sum)) + fmod(sum, 3);
}

int main(void) {
	double sum = 0;
	time_t end = time(NULL) + 4;
	for (int i = 0; time(NULL) < end; i++)
		sum += once(i);
	printf("%g\n", sum);
	return 0;
}
