/* Keeps 32 secret bytes on its stack while it is sampled.
 *
 * The secret comes as 64 hex digits on standard input, so that it is in no
 * argument, no environment and no binary; it exists as bytes on the stack only,
 * and the digits are wiped once read. Frames stand below the one that holds it,
 * so that every sample's stack copy contains it.
 *
 * secret =N < digits, or @N as chain.h says; it stops at its end, too, in that case. */
#include "chain.h"

enum { SECRET = 32 };

struct secret {
	unsigned char bytes[SECRET];
};

/* Is four times at the end of a chain of changing length, so that the samples differ. */
FRAME unsigned secret_leaf(unsigned n)
{
	for (int i = 0; i < 4 && chain_again(); i++) {
		n = n * 1664525u + 1013904223u;
		KEEP();
	}
	return n;
}

FRAME unsigned secret_inner(unsigned n, int depth)
{
	unsigned r = depth > 0 ? secret_inner(n, depth - 1) : secret_leaf(n);
	KEEP();
	return r + 1;
}

static int digit(int c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads one digit at a time with read(2): stdio would keep them in a buffer. */
FRAME int secret_read(struct secret *s)
{
	for (int i = 0; i < 2 * SECRET; i++) {
		char c;
		if (read(0, &c, 1) != 1 || digit(c) < 0)
			return -1;
		s->bytes[i / 2] = (unsigned char)(s->bytes[i / 2] << 4 | digit(c));
		c = 0;
		ESCAPE(&c);
	}
	return 0;
}

FRAME int secret_hold(void)
{
	struct secret s;
	unsigned n = 1;

	memset(&s, 0, sizeof s);
	if (secret_read(&s) != 0) {
		fprintf(stderr, "secret: need 64 hex digits (0-9, a-f) on standard input\n");
		return 2;
	}
	chain_say("main main secret_hold *");
	for (int depth = 0; chain_left > 0; depth = (depth + 1) % 8) {
		n = secret_inner(n, depth);
		ESCAPE(&s);
	}
	return 0;
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	int r = secret_hold();
	KEEP();
	if (chain_waits)
		raise(SIGSTOP);
	return r;
}
