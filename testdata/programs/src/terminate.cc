// Nobody catches: the terminate handler runs above the frames of the throw.
#include "chain.h"
#include <exception>

FRAME void terminate_leaf()
{
	spin();
}

FRAME void terminate_handler()
{
	terminate_leaf();
	_exit(0);
}

FRAME void terminate_thrower(int n)
{
	throw n;
}

FRAME void terminate_outer(int n)
{
	terminate_thrower(n);
	ESCAPE(&n);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	std::set_terminate(terminate_handler);
	chain_say("main main terminate_outer terminate_thrower * terminate_handler terminate_leaf");
	terminate_outer(argc);
	KEEP();
	return 0;
}
