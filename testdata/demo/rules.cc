// Formulas are parsed by recursive descent into a tree of std::function, and the
// tree is then called: deep stacks with library frames at every level.
#include "demo.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rules {

class Environment {
public:
	VISIBLE uint64_t &operator[](const std::string &name)
	{
		for (auto &v : variables_)
			if (v.first == name)
				return v.second;
		variables_.emplace_back(name, 0);
		return variables_.back().second;
	}

	VISIBLE uint64_t at(const std::string &name) const
	{
		for (const auto &v : variables_)
			if (v.first == name)
				return v.second;
		throw std::out_of_range(name);
	}

private:
	std::vector<std::pair<std::string, uint64_t>> variables_;
};

using Formula = std::function<uint64_t(const Environment &)>;

struct Variable {
	std::string name;
	uint64_t operator()(const Environment &e) const { return e.at(name); }
};

struct Sum {
	Formula left, right;
	uint64_t operator()(const Environment &e) const { return left(e) + right(e); }
};

struct Product {
	Formula left, right;
	uint64_t operator()(const Environment &e) const { return left(e) * right(e); }
};

class Parser {
public:
	explicit Parser(const std::string &text) : text_(text) {}

	VISIBLE Formula sum()
	{
		Formula left = product();
		while (next('+')) {
			Formula right = product();
			left = Sum{std::move(left), std::move(right)};
		}
		return left;
	}

private:
	VISIBLE Formula product()
	{
		Formula left = atom();
		while (next('*')) {
			Formula right = atom();
			left = Product{std::move(left), std::move(right)};
		}
		return left;
	}

	VISIBLE Formula atom()
	{
		if (next('(')) {
			Formula inner = sum();
			next(')');
			return inner;
		}
		std::string name;
		while (at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z')
			name += text_[at_++];
		return Variable{name};
	}

	bool next(char c)
	{
		if (at_ == text_.size() || text_[at_] != c)
			return false;
		at_++;
		return true;
	}

	const std::string text_;
	size_t at_ = 0;
};

// A formula with parentheses depth levels deep.
VISIBLE std::string write(int depth, uint32_t &state)
{
	static const char *const names[] = {"alpha", "beta", "gamma", "delta"};
	if (depth == 0)
		return names[demo_random(&state) % 4];
	const char *op = demo_random(&state) % 2 == 0 ? "+" : "*";
	std::string left = write(depth - 1, state);
	std::string right = write(demo_random(&state) % 3 == 0 ? depth - 1 : 0, state);
	return "(" + left + op + right + ")";
}

VISIBLE uint64_t evaluate(const Formula &f, Environment &e)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < 60; i++) {
		e["alpha"] = i;
		sum += f(e);
	}
	return sum;
}

} // namespace rules

uint64_t rules_round(unsigned seed)
{
	uint32_t state = seed * 22695477u | 1;
	rules::Environment e;
	uint64_t sum = 0;

	e["alpha"] = 0;
	e["beta"] = 3;
	e["gamma"] = 5;
	e["delta"] = 7;
	for (int i = 0; i < 40; i++) {
		rules::Formula f = rules::Parser(rules::write(10, state)).sum();
		sum += rules::evaluate(f, e);
	}
	return sum;
}
