/* longjmp drops twenty frames, then the chain goes on from where setjmp was. */
#include "chain.h"
#include <setjmp.h>

static jmp_buf back;

/* On its own, or gcc takes longjmp_dropped for an infinite recursion. */
FRAME void longjmp_leave(void)
{
	longjmp(back, 1);
}

FRAME void longjmp_dropped(int n)
{
	char room[128];
	ESCAPE(room);
	if (n > 0)
		longjmp_dropped(n - 1);
	else
		longjmp_leave();
	ESCAPE(room);
}

FRAME void longjmp_leaf(void)
{
	spin();
}

FRAME void longjmp_after(int n)
{
	longjmp_leaf();
	ESCAPE(&n);
}

FRAME void longjmp_outer(int n)
{
	if (setjmp(back) == 0)
		longjmp_dropped(20);
	else
		longjmp_after(n);
	KEEP();
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main longjmp_outer longjmp_after longjmp_leaf");
	longjmp_outer(argc);
	KEEP();
	return 0;
}
