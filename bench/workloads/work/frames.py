"""Writes FRAMES moving pictures in YUV4MPEG2: frames.py FRAMES FILE."""
import sys

W, H = 640, 360
with open(sys.argv[2], "wb") as out:
    out.write(b"YUV4MPEG2 W%d H%d F30:1 Ip A1:1 C420jpeg\n" % (W, H))
    wave = bytes((x * x // 97 + x * 3) % 256 for x in range(4 * W))
    for n in range(int(sys.argv[1])):
        luma = b"".join(wave[(y * 3 + n * 5) % W:][:W] for y in range(H))
        chroma = b"".join(wave[(y * 7 + n * 2) % W:][:W // 2] for y in range(H // 2))
        out.write(b"FRAME\n" + luma + chroma + chroma)
