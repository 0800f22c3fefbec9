import json
import re
import time

words = [f"word{i * 7919 % 1000}" for i in range(2000)]
data = {"words": words, "numbers": [i / 3 for i in range(2000)]}


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


end = time.monotonic() + 3
while time.monotonic() < end:
    text = json.dumps(data)
    assert json.loads(text) == data
    re.findall(r"(w[a-z]+)(\d+)", text)
    sorted(words, key=lambda w: (len(w), w[::-1]))
    fib(12)
    pow(3, 2000) % 1000007
