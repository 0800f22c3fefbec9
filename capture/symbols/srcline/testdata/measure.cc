#include "shapes.h"
#include <stdexcept>

namespace shapes {

double measure(const std::map<std::string, Path<double>> &paths) {
	double sum = 0;
	for (auto &entry : paths) {
		const std::string &name = entry.first;
		const Path<double> &path = entry.second;
		if (name.empty())
			throw std::runtime_error("no name: " + name);
		sum += path.length();
	}
	return sum;
}

int weigh(int seed, std::function<int(int)> f) {
	std::vector<int> v(64);
	std::iota(v.begin(), v.end(), seed);
	std::stable_sort(v.begin(), v.end(), [](int a, int b) { return mix(a, b) < mix(b, a); });
	int sum = 0;
	for (int n : v)
		sum = mix(sum, f(n));
	return sum;
}

} // namespace shapes
