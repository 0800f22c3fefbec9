/* Runs the programs argv[2] and argv[3] in turn, argv[1] of them, each under the PID that the one
 * before had. */
#include "chain.h"
#include <errno.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static pid_t clone_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1,
	};
	pid_t child;

	do
		child = syscall(SYS_clone3, &args, sizeof args);
	while (child < 0 && errno == EEXIST && usleep(1000) == 0); /* another has it now */
	return child;
}

int main(int argc, char **argv)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < chain_arg(argc, argv, 1, 2); i++) {
		pid_t child = clone_as(pid);

		if (child == 0) {
			execl(argv[2 + i % 2], argv[2 + i % 2], NULL);
			_exit(127);
		}
		if (child < 0) {
			printf("clone3: %s\n", strerror(errno));
			return 0;
		}
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	printf("%d\n", pid);
	return 0;
}
