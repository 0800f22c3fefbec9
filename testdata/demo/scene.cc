// C++ as it is written: a tree of shapes behind a virtual interface, walked
// recursively; std::sort with a comparison of ours; an exception now and then.
#include "demo.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

namespace scene {

struct Hit {
	double distance;
	int shape;
};

class Shape {
public:
	virtual ~Shape() = default;
	virtual void intersect(double x, double y, std::vector<Hit> &hits) const = 0;
};

class Circle : public Shape {
public:
	Circle(int id, double x, double y, double r) : id_(id), x_(x), y_(y), r_(r) {}

	VISIBLE void intersect(double x, double y, std::vector<Hit> &hits) const override
	{
		double d = std::hypot(x - x_, y - y_);
		if (d < r_)
			hits.push_back({d, id_});
	}

private:
	int id_;
	double x_, y_, r_;
};

class Wave : public Shape {
public:
	Wave(int id, double phase) : id_(id), phase_(phase) {}

	VISIBLE void intersect(double x, double y, std::vector<Hit> &hits) const override
	{
		double d = std::fabs(y - std::sin(x + phase_));
		if (d < 0.25)
			hits.push_back({d, id_});
	}

private:
	int id_;
	double phase_;
};

class Group : public Shape {
public:
	void add(std::unique_ptr<Shape> s) { parts_.push_back(std::move(s)); }

	VISIBLE void intersect(double x, double y, std::vector<Hit> &hits) const override
	{
		for (const auto &p : parts_)
			p->intersect(x, y, hits);
	}

private:
	std::vector<std::unique_ptr<Shape>> parts_;
};

// A tree of groups, depth levels deep, with shapes at its leaves.
VISIBLE std::unique_ptr<Shape> build(int depth, uint32_t &state, int &id)
{
	auto g = std::make_unique<Group>();
	for (int i = 0; i < 3; i++) {
		double a = demo_random(&state) % 1000 / 250.0, b = demo_random(&state) % 1000 / 250.0;
		if (depth > 0)
			g->add(build(depth - 1, state, id));
		else if (demo_random(&state) % 2 == 0)
			g->add(std::make_unique<Circle>(id++, a, b, 0.9));
		else
			g->add(std::make_unique<Wave>(id++, a));
	}
	return g;
}

struct Nearer {
	VISIBLE bool operator()(const Hit &a, const Hit &b) const
	{
		return a.distance != b.distance ? a.distance < b.distance : a.shape < b.shape;
	}
};

VISIBLE int nearest(std::vector<Hit> &hits)
{
	std::sort(hits.data(), hits.data() + hits.size(), Nearer());
	if (hits.empty())
		throw std::out_of_range("nothing there");
	return hits.front().shape;
}

VISIBLE int look(const Shape &root, double x, double y)
{
	std::vector<Hit> hits;
	root.intersect(x, y, hits);
	return nearest(hits);
}

// Points far outside hit nothing, and say so by an exception.
VISIBLE uint64_t render(const Shape &root, uint32_t &state)
{
	uint64_t sum = 0;
	for (int i = 0; i < 250; i++) {
		double x = demo_random(&state) % 1000 / 250.0, y = demo_random(&state) % 1000 / 250.0;
		try {
			sum += static_cast<uint64_t>(look(root, x, i % 4 == 0 ? y + 100 : y));
		} catch (const std::out_of_range &) {
			sum += 1000003;
		}
	}
	return sum;
}

} // namespace scene

uint64_t scene_round(unsigned seed)
{
	uint32_t state = seed * 69069u | 1;
	int id = 0;
	auto root = scene::build(4, state, id);
	return scene::render(*root, state);
}
