#include "shapes.h"
#include <cstdio>

using namespace shapes;

namespace {

struct Shape {
	virtual ~Shape() {}
	virtual int area() const = 0;
};

template <int N> struct Square : Shape {
	int area() const override { return mix(N, N * 3); }
};

__attribute__((noinline)) int total(const std::vector<Shape *> &all) {
	int sum = 0;
	for (auto s : all)
		sum += s->area();
	return sum;
}

} // namespace

extern "C" __attribute__((noinline)) int plain_c(int n) {
	struct Local {
		static __attribute__((noinline)) int twice(int n) { return mix(n, n + 1); }
	};
	return Local::twice(n) + 1;
}

int main(int argc, char **argv) {
	Table<const char *, Path<double>> paths;
	for (int i = 0; i < argc; i++) {
		Path<double> p;
		for (int k = 0; k < 100; k++)
			p.add({double(mix(i, k)), double(k)});
		p.order();
		paths.add(argv[i], p);
	}
	std::vector<Shape *> all;
	all.push_back(new Square<3>);
	all.push_back(new Square<4>);
	printf("%f %d %d %d\n", measure(paths), weigh(argc, [](int n) { return mix(n, 3); }), total(all), plain_c(argc));
}
