// Two threads with names, inlined functions and system calls: of the inlined ones, every tenth takes a page fault.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

static volatile unsigned sink;

static thread_local char *page; // that nobody has touched
static thread_local unsigned calls;

template <typename T> static inline __attribute__((always_inline)) T mix(T a, T b) {
	if (++calls % 10 == 0) {
		*(volatile char *)page = 1;
		page += 4096;
	}
	return a * 31 + b;
}

__attribute__((noinline)) static unsigned sorting(unsigned seed) {
	std::vector<unsigned> v(500);
	for (auto &x : v)
		x = seed = mix(seed, 7u);
	std::sort(v.begin(), v.end());
	return v[250];
}

__attribute__((noinline)) static unsigned calling(unsigned seed) {
	for (int i = 0; i < 50; i++)
		seed = mix(seed, (unsigned)syscall(SYS_getppid));
	return seed;
}

static void work(unsigned (*f)(unsigned)) {
	page = (char *)mmap(nullptr, 101 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(page, 101 * 4096, MADV_NOHUGEPAGE);
	while (calls < 1000)
		sink = f(sink);
}

static void *worker(void *) {
	pthread_setname_np(pthread_self(), "worker");
	work(calling);
	return nullptr;
}

int main() {
	pthread_t t;
	pthread_create(&t, nullptr, worker, nullptr);
	work(sorting);
	pthread_join(t, nullptr);
}
