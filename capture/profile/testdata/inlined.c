// A function with two others inlined one into the other.
static inline __attribute__((always_inline)) int inner(int x) { return x * 7 + x / 3; }
static inline __attribute__((always_inline)) int middle(int x) { return inner(x) ^ inner(x + 1); }
__attribute__((noinline)) int outer(int x) { return middle(x) + middle(x * 5); }
int main(int argc, char **argv) { return outer(argc) & argv[0][0]; }
