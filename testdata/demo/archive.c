/* Work with kernel time in it: blocks of an unnamed file are read, packed with a
 * small LZ77, written to a mapping, unpacked and hashed. */
#define _GNU_SOURCE
#include "demo.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 96, PARAGRAPH = 256, WINDOW = 4096, SLOTS = 1024 };

static VISIBLE uint32_t hash_block(const unsigned char *p, size_t n)
{
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

static VISIBLE size_t match_length(const unsigned char *a, const unsigned char *b, size_t max)
{
	size_t n = 0;
	while (n < max && a[n] == b[n])
		n++;
	return n;
}

/* The longest earlier match of in[at..], through a table of last positions. */
static VISIBLE size_t find_match(const unsigned char *in, size_t at, size_t size, int32_t *last,
				 size_t *distance)
{
	uint32_t key, n = 0;

	memcpy(&key, in + at, sizeof key);
	key = (key * 2654435761u) >> 22;
	if (last[key] >= 0 && at - (size_t)last[key] < WINDOW) {
		size_t max = size - at < 255 ? size - at : 255;
		*distance = at - (size_t)last[key];
		n = match_length(in + last[key], in + at, max);
	}
	last[key] = (int32_t)at;
	return n >= 4 ? n : 0;
}

/* A token is (0, byte) or (length, distance in two bytes). */
static VISIBLE size_t pack_block(const unsigned char *in, size_t size, unsigned char *out)
{
	int32_t last[SLOTS];
	size_t o = 0;

	memset(last, 0xff, sizeof last);
	for (size_t at = 0; at < size;) {
		size_t distance = 0, n = size - at >= 4 ? find_match(in, at, size, last, &distance) : 0;
		out[o++] = (unsigned char)n;
		if (n == 0) {
			out[o++] = in[at++];
		} else {
			out[o++] = (unsigned char)distance;
			out[o++] = (unsigned char)(distance >> 8);
			at += n;
		}
	}
	return o;
}

static VISIBLE size_t unpack_block(const unsigned char *in, size_t size, unsigned char *out)
{
	size_t o = 0;

	for (size_t i = 0; i < size;) {
		size_t n = in[i++];
		if (n == 0) {
			out[o++] = in[i++];
			continue;
		}
		size_t distance = in[i] | (size_t)in[i + 1] << 8;
		i += 2;
		for (; n > 0; n--, o++)
			out[o] = out[o - distance];
	}
	return o;
}

/* Text of a small vocabulary, so that there is something to pack, written a
 * paragraph at a time: many short system calls. */
static VISIBLE int make_file(uint32_t *state)
{
	static const char *const line[8] = {
		"the frame is found by its rule; ", "return address, ", "register rbx ", "stack ",
		"an unwinder walks up, ", "CFA = rsp + 16; ", "restored ", "0x7ffe0042 "};
	char text[PARAGRAPH];
	int fd = memfd_create("archive", MFD_CLOEXEC);

	if (fd < 0)
		abort();
	for (int p = 0; p < BLOCKS * (BLOCK / PARAGRAPH); p++) {
		size_t n = 0;
		while (n < sizeof text) {
			const char *s = line[demo_random(state) % 8];
			size_t len = strlen(s), room = sizeof text - n;
			memcpy(text + n, s, len < room ? len : room);
			n += len < room ? len : room;
		}
		if (write(fd, text, sizeof text) != (ssize_t)sizeof text)
			abort();
	}
	if (lseek(fd, 0, SEEK_SET) != 0)
		abort();
	return fd;
}

static VISIBLE size_t pack_file(int fd, unsigned char *packed, uint32_t *sum)
{
	unsigned char block[BLOCK], back[BLOCK];
	size_t used = 0;
	ssize_t n;

	while ((n = read(fd, block, sizeof block)) > 0) {
		size_t size = pack_block(block, (size_t)n, packed + used);
		if (unpack_block(packed + used, size, back) != (size_t)n ||
		    hash_block(back, (size_t)n) != hash_block(block, (size_t)n))
			abort();
		*sum ^= hash_block(packed + used, size);
		used += size;
	}
	return used;
}

uint64_t archive_round(unsigned seed)
{
	uint32_t state = seed * 40503u | 1, sum = 0;
	size_t room = 2 * (size_t)BLOCK * BLOCKS, used;
	int fd = make_file(&state);
	unsigned char *packed = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (packed == MAP_FAILED)
		abort();
	used = pack_file(fd, packed, &sum);
	munmap(packed, room);
	close(fd);
	return (uint64_t)used << 32 | sum;
}
