// Templates for the optimiser to inline into one another.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace shapes {

template <typename T> struct Point {
	T x, y;
	T dot(const Point &o) const { return x * o.x + y * o.y; }
	bool operator<(const Point &o) const { return dot(*this) < o.dot(o); }
};

template <typename T> class Path {
public:
	void add(Point<T> p) { points.push_back(p); }
	T length() const {
		return std::accumulate(points.begin(), points.end(), T{}, [](T sum, const Point<T> &p) { return sum + p.dot(p); });
	}
	void order() { std::sort(points.begin(), points.end()); }

private:
	std::vector<Point<T>> points;
};

double measure(const std::map<std::string, Path<double>> &paths);
int weigh(int seed, std::function<int(int)> f);

inline int mix(int a, int b) {
	if (a > b) {
		int c = a ^ b;
		return c * 31 + b;
	}
	return a * 17 - b;
}

} // namespace shapes
