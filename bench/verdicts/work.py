"""Objects, calls, text and JSON: the same work each time. The argument is how often."""
import json
import sys


class Shape:
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def once(n):
    words = {}
    for i in range(3000):
        word = f"word{(i * 7919 + n) % 700}"
        words[word] = words.get(word, 0) + i
    text = json.dumps(dict(sorted(words.items(), key=lambda w: (w[1], w[0]))))
    return len(json.loads(text)) + fib(15) + sum(s.area() for s in map(Shape, range(1000)))


print(sum(once(n) for n in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100)))
