/* It tells of the frames of outer, which has called inner, and of main, which has called outer:
 * the PC, SP and BP of each. Told "remnant", outer then has the return address of another function in the
 * place of its own, as if it had returned, and that function had been called. Told "cleared", it has 0 there,
 * as where the stack of a thread began that has ended, and has called inner by way of middle. */
#include <stdint.h>
#include <unistd.h>

static uint64_t told[6], another;

__attribute__((noipa)) static void other(void) { another = (uintptr_t)__builtin_return_address(0); }

static void tell(uint64_t *t, void *pc, uint64_t *frame)
{
	t[0] = (uintptr_t)pc;
	t[1] = (uintptr_t)(frame + 2);
	t[2] = frame[0];
}

__attribute__((noipa)) static void inner(void)
{
	tell(told, __builtin_return_address(0), __builtin_frame_address(0));
	if (write(1, told, sizeof told) == sizeof told)
		for (;;)
			pause();
}

__attribute__((noipa)) static void middle(void) { inner(); }

__attribute__((noipa)) static void outer(int first)
{
	uint64_t *frame = __builtin_frame_address(0);
	if (first == 'r')
		frame[1] = another;
	if (first == 'c')
		frame[1] = 0;
	tell(told + 3, (void *)frame[1], frame);
	if (first == 'c')
		middle();
	inner();
}

int main(int argc, char **argv)
{
	other();
	outer(argc > 1 ? argv[1][0] : 0);
	return argv[0] == 0;
}
