#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

int main(int argc, char **argv) {
	std::map<std::string, std::vector<int>> places;
	std::regex word("([a-z]+)[0-9]*", std::regex::icase);
	for (int i = 1; i < argc; i++) {
		std::string text = argv[i];
		for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it)
			places[(*it)[1].str()].push_back(i);
	}
	for (auto &[name, list] : places) {
		std::sort(list.begin(), list.end(), [](int a, int b) { return a > b; });
		std::cout << name << ' ' << list.size() << '\n';
	}
}
