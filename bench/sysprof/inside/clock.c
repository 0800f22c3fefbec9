/* Preloaded into sysprofd on machines without a counter of cycles, such as virtual ones: it opens the CPU's clock
 * instead, every millisecond, with which Sysprof means to replace the counter itself. There, Sysprof 48 to 51 give the
 * event up after the attempts before have failed: g_unix_fd_list_append refuses an error that is set already. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static long call(long number, const long *arg)
{
	register long r10 __asm__("r10") = arg[3];
	register long r8 __asm__("r8") = arg[4];
	register long r9 __asm__("r9") = arg[5];
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(arg[0]), "S"(arg[1]), "d"(arg[2]), "r"(r10),
		"r"(r8), "r"(r9) : "rcx", "r11", "memory");
	if (result < 0 && result > -4096) {
		errno = -result;
		return -1;
	}
	return result;
}

long syscall(long number, ...)
{
	long arg[6];
	va_list rest;

	va_start(rest, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(rest, long);
	va_end(rest);
	if (number == SYS_perf_event_open) {
		struct perf_event_attr *attr = (void *)arg[0];
		if (attr->type == PERF_TYPE_HARDWARE && attr->config == PERF_COUNT_HW_CPU_CYCLES) {
			attr->type = PERF_TYPE_SOFTWARE;
			attr->config = PERF_COUNT_SW_CPU_CLOCK;
			attr->sample_period = 1000000;
		}
	}
	return call(number, arg);
}
