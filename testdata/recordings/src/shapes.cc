// C++: a namespace, classes with virtual functions, a template, recursion, and functions that are inlined. It takes
// argv[1] page faults at shapes::Square::area and as many at shapes::Circle::area, in turn.
#include "bare.h"

namespace shapes {

struct Shape {
	virtual unsigned area(unsigned n) const = 0;
};

static inline __attribute__((always_inline)) unsigned square(unsigned n)
{
	bare_touch();
	return n * n;
}

struct Square : Shape {
	FRAME unsigned area(unsigned n) const override
	{
		n = square(n);
		KEEP();
		return n;
	}
};

struct Circle : Shape {
	FRAME unsigned area(unsigned n) const override
	{
		n = square(n) * 355 / 113;
		KEEP();
		return n;
	}
};

template <int Depth> struct Group : Shape {
	const Shape *of[2];

	FRAME unsigned area(unsigned n) const override
	{
		unsigned r = nested(n, n % Depth);
		KEEP();
		return r;
	}
	FRAME unsigned nested(unsigned n, unsigned depth) const
	{
		volatile unsigned local[8] = {n, depth};
		unsigned r = depth > 0 ? nested(n, depth - 1) : of[n % 2]->area(n);
		KEEP();
		return r + local[depth % 8];
	}
};

} // namespace shapes

static shapes::Square one;
static shapes::Circle two;
static shapes::Group<5> all;
static volatile unsigned sum;

int bare_main(long argc, char **argv, char **)
{
	const shapes::Shape *shape = &all;
	all.of[0] = &one;
	all.of[1] = &two;
	for (unsigned n = 0; argc > 1 && n < 2 * bare_number(argv[1]); n++) {
		sum += shape->area(n);
		KEEP();
	}
	return 0;
}

extern "C" void __cxa_pure_virtual(void) { __builtin_trap(); }
