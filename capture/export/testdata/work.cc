// Two threads with names, inlined functions and system calls, for 300 ms of CPU time each.
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

static volatile unsigned sink;

template <typename T> static inline T mix(T a, T b) { return a * 31 + b; }

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
	for (timespec t = {}; t.tv_nsec < 300000000 && t.tv_sec == 0; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t))
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
