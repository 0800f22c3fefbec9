// Counts and sorts words: the same work each time. The argument is how often.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

struct Shape {
	virtual ~Shape() = default;
	virtual double area() const = 0;
};
struct Square : Shape {
	double side;
	explicit Square(double s) : side(s) {}
	double area() const override { return side * side; }
};
struct Both : Shape {
	const Shape &a, &b;
	Both(const Shape &x, const Shape &y) : a(x), b(y) {}
	double area() const override { return a.area() + b.area(); }
};

static std::map<std::string, long> count(unsigned n)
{
	std::unordered_map<std::string, long> words;
	for (unsigned i = 0; i < 20000; i++)
		words["a word with the number " + std::to_string((i * 7919 + n) % 5000)] += i;
	return {words.begin(), words.end()};
}

static double areas(const Shape &shape, int depth)
{
	if (depth == 0)
		return shape.area();
	Both twice(shape, shape);
	return areas(twice, depth - 1);
}

int main(int argc, char **argv)
{
	double total = 0;
	for (int n = argc > 1 ? std::atoi(argv[1]) : 100; n > 0; n--) {
		auto words = count(n);
		std::vector<std::pair<long, std::string>> sorted;
		for (auto &[word, c] : words)
			sorted.emplace_back(c, word);
		std::sort(sorted.begin(), sorted.end());
		total += sorted[n].first + areas(Square(n), 14);
	}
	std::cout << total << '\n';
}
