# hot.py [FUNCTIONS]: calls FUNCTIONS others first, so that CPython writes out
# what its jitdump has in a buffer.
import sys, time

def leaf(a, b):
    s = 0
    for x in a:
        s = (s * 31 + x * b) % 65537
    return s

def middle(a, n):
    return leaf(a, 7) if n == 0 else middle(a, n - 1) + leaf(a, n)

def by_key(x):
    return -leaf((x, x), x)

def turn(data):
    return middle(data, 8) + sum(sorted(data, key=by_key))

data = list(range(200))
total = turn(data)
for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 0):
    exec(f'def f{i}(): return {i}\ntotal += f{i}()')
print('ready', flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    total += turn(data)
