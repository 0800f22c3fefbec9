/* Called back by libgcc's own unwinder, whose frame saves every register. */
#include "chain.h"
#include <unwind.h>

FRAME void backtrace_leaf(void)
{
	spin();
}

FRAME _Unwind_Reason_Code backtrace_step(struct _Unwind_Context *context, void *arg)
{
	(void)context;
	(void)arg;
	backtrace_leaf();
	KEEP();
	return _URC_END_OF_STACK;
}

FRAME void backtrace_outer(int n)
{
	_Unwind_Backtrace(backtrace_step, &n);
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main backtrace_outer * backtrace_step backtrace_leaf");
	backtrace_outer(argc);
	KEEP();
	return 0;
}
