# Does the same work so many times: "flat" is what a script does, whose Python calls share one native frame, "deep"
# goes through trees by calls from C. Then it writes into a file when it was done, and the CPU time that it took, in ns.
import json
import re
import sys
import time

words = [f"word{i * 7919 % 1000}" for i in range(2000)]
data = {"words": words, "numbers": [i / 3 for i in range(2000)]}


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def flat():
    text = json.dumps(data)
    assert json.loads(text) == data
    re.findall(r"(w[a-z]+)(\d+)", text)
    sorted(words, key=lambda w: (len(w), w[::-1]))
    fib(12)
    pow(3, 2000) % 1000007


def total(tree):
    return 1 + sum(map(total, tree)) + fib(6)


def chain(n):
    tree = []
    for _ in range(n):
        tree = [tree, []]
    return tree


trees = [chain(n) for n in range(4, 64, 6)]


def deep():
    for tree in trees:
        total(tree)


run = {"flat": flat, "deep": deep}[sys.argv[1]]
for _ in range(int(sys.argv[2])):
    run()
with open(sys.argv[3], "w") as f:
    f.write(f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {time.process_time_ns()}")
