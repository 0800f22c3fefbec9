# hot.py TIMES [FUNCTIONS]: touches TIMES fresh pages each time that a line comes. It calls FUNCTIONS others
# first, so that CPython writes out what its jitdump has in a buffer.
import mmap, sys

def leaf(a, n):
    for i in range(n):
        a[i * 4096] = 1
    return n

def middle(a, n, deep):
    return leaf(a, n) if deep == 0 else middle(a, n, deep - 1) + 1

def by_key(x):
    return -middle(x, len(x) // 4096, 3)

def pages(n):
    a = mmap.mmap(-1, 4096 * n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(a, 'madvise'):
        a.madvise(15)  # no huge pages
    return a

times = int(sys.argv[1])
total = sorted([pages(3), pages(2)], key=by_key) and 0
for i in range(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    exec(f'def f{i}(): return {i}\ntotal += f{i}()')
print('ready', flush=True)
for line in sys.stdin:
    sorted([pages(times)], key=by_key)
    print('done', flush=True)
