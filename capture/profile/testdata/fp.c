/* It takes a page fault in spin for each time that light calls it, and three times as many for heavy, and some in
 * the kernel. With an argument it takes its time. */
#include <stdlib.h>
#include <unistd.h>
#include <sys/random.h>

#define NI __attribute__((noinline))
enum { rounds = 60 };
static char pages[(6 * rounds + 2) << 12], *next = pages + (1 << 12);
volatile unsigned long sink;
NI static char *page(void) { next += 1 << 12; return next - (1 << 12); }
NI void spin(int n) { for (int i = 0; i < n; i++) { char *p = page(); *p = 1; sink += i; } }
NI void light(void) { spin(1); sink++; }
NI void heavy(void) { spin(3); sink++; }
NI void recurse(int n) { if (n) recurse(n - 1); else heavy(); sink++; }
NI void calls(void) { if (getrandom(page(), 1, 0) < 1) exit(1); sink++; }
int main(int argc, char **argv)
{
	(void)argv;
	for (int i = 0; i < rounds; i++) {
		light();
		recurse(5);
		calls();
		if (argc > 1)
			usleep(4000);
	}
	return 0;
}
