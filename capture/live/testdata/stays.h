/* With -include: the program stays when it would end, so that what is read from its memory is there. */
#include <unistd.h>

__attribute__((destructor)) static void stay(void)
{
	pause();
}
