// Templates for the optimiser to inline into one another. Of the standard library they need headers that are read soon.
#pragma once
#include <algorithm>
#include <numeric>
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

template <typename K, typename V> struct Table {
	struct Entry {
		K key;
		V value;
		bool operator<(const Entry &o) const { return key < o.key; }
	};
	std::vector<Entry> all;

	void add(K key, const V &value) {
		all.insert(std::upper_bound(all.begin(), all.end(), Entry{key, V()}), Entry{key, value});
	}
};

double measure(const Table<const char *, Path<double>> &paths);
int weigh(int seed, int (*f)(int));

inline int mix(int a, int b) {
	if (a > b) {
		int c = a ^ b;
		return c * 31 + b;
	}
	return a * 17 - b;
}

} // namespace shapes
