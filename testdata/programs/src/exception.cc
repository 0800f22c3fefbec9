// An exception under way: the leaf is called by a destructor, which a landing
// pad of the function that is being left has called. The frames that the
// exception has already left are gone.
#include "chain.h"

struct exception_guard {
	FRAME ~exception_guard();
};

FRAME void exception_leaf()
{
	spin();
}

exception_guard::~exception_guard()
{
	exception_leaf();
	KEEP();
}

FRAME void exception_thrower(int n)
{
	throw n;
}

FRAME void exception_deep(int n)
{
	char room[200];
	ESCAPE(room);
	if (n > 0)
		exception_deep(n - 1);
	else
		exception_thrower(n);
	ESCAPE(room);
}

FRAME void exception_left(int n)
{
	exception_guard guard;
	ESCAPE(&guard);
	exception_deep(n);
	KEEP();
}

FRAME void exception_outer(int n)
{
	try {
		exception_left(n);
	} catch (int) {
		KEEP();
	}
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main exception_outer exception_left exception_guard::~exception_guard exception_leaf");
	exception_outer(5);
	KEEP();
	return 0;
}
