// Spends its time in a template of its own that is inlined twice, and in a shared library that lies at the same virtual addresses.
extern "C" void library_spin(int n);

volatile unsigned long sink;

template <typename T> static inline __attribute__((always_inline)) T mix(T x) {
	x ^= x << 13;
	return x ^ x >> 7;
}

template <typename T> static inline __attribute__((always_inline)) T rounds(T x, int n) {
	for (int i = 0; i < n; i++)
		x = mix(x);
	return x;
}

extern "C" __attribute__((noinline)) void hash(unsigned long n) {
	sink = sink + rounds(n, 50000);
}

int main() {
	for (unsigned long i = 0; i < 1000; i++) {
		hash(i);
		library_spin(50000);
		sink = sink + 1;
	}
}
