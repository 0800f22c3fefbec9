// A function within a function lies outside the code of the one around it.
#include <stdio.h>

static inline int half(int n) { return n / 2; }

__attribute__((noinline)) int each(int n, int (*f)(int)) {
	int sum = 0;
	for (int i = 0; i < n; i++)
		sum += f(i);
	return sum;
}

__attribute__((noinline)) int outer(int n, int scale) {
	__attribute__((noinline)) int inner(int k) { return half(k * scale) + scale; }
	return each(n, inner);
}

int main(int argc, char **argv) { printf("%d\n", outer(argc, 3)); }
