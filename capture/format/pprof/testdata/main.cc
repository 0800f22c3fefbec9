// Works in a template of its own that is inlined twice, and in a shared library that lies at the same virtual addresses:
// argv[1] times, in argv[2] rounds each. The first rounds of either touch a fresh page each.
#include <stdlib.h>

extern "C" void library_spin(int n);

volatile unsigned long sink;
static volatile char pages[60][4096] __attribute__((aligned(4096)));
static volatile int touched;

template <typename T> static inline __attribute__((always_inline)) T mix(T x) {
	x ^= x << 13;
	if (touched < 60)
		pages[touched++][0] = 1;
	return x ^ x >> 7;
}

template <typename T> static inline __attribute__((always_inline)) T rounds(T x, int n) {
	for (int i = 0; i < n; i++)
		x = mix(x);
	return x;
}

extern "C" __attribute__((noinline)) void hash(unsigned long n, int times) {
	sink = sink + rounds(n, times);
}

int main(int, char **argv) {
	int times = atoi(argv[1]), n = atoi(argv[2]);

	touched = 0; // the page in which it lies is no page that mix touches first
	for (int i = 0; i < times; i++) {
		hash(i, n);
		library_spin(n);
		sink = sink + 1;
	}
}
