/* Has pages in a large frame that userfaultfd(2) would have to give, and that no thread touches. It stops when it has
 * been counted, until SIGCONT, as stays.c does. Then it says how often it was asked for such a page. */
#include "chain.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

FRAME void userfault_leaf(void)
{
	spin();
}

FRAME void userfault_large(const char *fifo)
{
	enum { page = 4096, pages = 64, beside = 2 * page };
	volatile char frame[pages * page];
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { ((unsigned long)frame + beside + page) & -page, sizeof frame - 2 * beside },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffd_msg fault;
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), asked = 0;

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &range) < 0)
		exit(77);
	userfault_leaf();
	dprintf(open(fifo, O_WRONLY), "%d\n", (int)getpid());
	raise(SIGSTOP);
	while (read(fd, &fault, sizeof fault) == sizeof fault)
		asked++;
	printf("asked %d times\n", asked);
	fflush(stdout);
	ESCAPE(&frame);
}

int main(int argc, char **argv)
{
	chain_begin(argc, argv);
	chain_say("main main userfault_large userfault_leaf");
	userfault_large(argv[2]);
	KEEP();
	return 0;
}
