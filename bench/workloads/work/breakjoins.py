"""As breakjoins.c, with up to 1 MiB of Python and C between a caller and where the time goes.

breakjoins.py MICROSECONDS MILLISECONDS
"""
import ctypes
import os
import random
import sys
import time

lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "breakjoins.so"))
lib.spin.argtypes = [ctypes.c_long, ctypes.c_uint]
period = int(sys.argv[1]) * 1000
sys.setrecursionlimit(10000)


def down(n, way):
    if n == 0:
        lib.spin(period, way)
    else:  # the frame of sort has 3 KiB
        sorted((n - 1,), key=lambda m: down(m, way))


back = ctypes.CFUNCTYPE(None, ctypes.c_uint)(lambda way: down(random.randrange(250), way))
end = time.monotonic() + int(sys.argv[2]) / 1000
while time.monotonic() < end:
    lib.callBack(back)
