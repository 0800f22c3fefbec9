#include "shapes.h"

namespace shapes {

// Has types and attributes that are rare.
struct Unnamed {
	alignas(16) int at;
	int Unnamed::*which;
	decltype(nullptr) none;
};

double measure(const Table<const char *, Path<double>> &paths) {
	double sum = 0;
	for (auto &entry : paths.all) {
		const char *name = entry.key;
		const Path<double> &path = entry.value;
		const Unnamed unnamed{int(sum), &Unnamed::at, nullptr};
		if (!*name)
			throw unnamed;
		sum += path.length();
	}
	return sum;
}

int weigh(int seed, int (*f)(int)) {
	std::vector<int> v(64);
	std::iota(v.begin(), v.end(), seed);
	std::stable_sort(v.begin(), v.end(), [](int a, int b) { return mix(a, b) < mix(b, a); });
	int sum = 0;
	for (int n : v)
		sum = mix(sum, f(n));
	return sum;
}

} // namespace shapes
