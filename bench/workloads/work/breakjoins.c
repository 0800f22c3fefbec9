// Programs that leave a function and enter it again at the same place on the stack, from somewhere else, over
// and over: what is seen of the stack before and after a sample need not have been so in between.
//
//	breakjoins MODE MICROSECONDS MILLISECONDS
//
// Each tells in a register which way led to where it is: see spin.
#define _GNU_SOURCE
#include <alloca.h>
#include <linux/sched.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noipa))
#define KEEP() __asm__ volatile("" ::: "memory")

static long period = 1000000;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

// A way has two bits for each function on the stack that has a number: see DIGIT.
typedef unsigned way;

// The way is in R15, with a word above it by which it is known, while this loops.
static inline __attribute__((always_inline)) void spinHere(long ns, way w)
{
	for (long end = now() + ns; now() < end;) {
		register unsigned long told __asm__("r15") = 0x3ade5105ul << 32 | w;
		for (int i = 0; i < 1000; i++)
			__asm__ volatile("" : "+r"(told));
		told = 0;
		__asm__ volatile("" : "+r"(told));
	}
}

NOINLINE void spin(long ns, way w) { spinHere(ns, w); }

// Frames of 1 KiB each, some or many: of the larger stacks the smaller copies hold the innermost part.
static NOINLINE void deep(int n, long ns, way w)
{
	char pad[1 << 10];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	if (n == 0)
		spin(ns, w);
	else
		deep(n - 1, ns, w);
	__asm__ volatile("" : : "r"(pad) : "memory");
}

static NOINLINE void work(way w)
{
	deep(rand() % 48, period, w);
	KEEP();
}

// A gap: pages that are not there between a frame and its caller. Each time it has another size.
static NOINLINE void gap(way w)
{
	const size_t page = 4096, size = page * (3 + rand() % 4);
	char *hole = alloca(size);
	__asm__ volatile("" : : "r"(hole) : "memory");
	madvise((void *)(((uintptr_t)hole + page - 1) & -page), size - page, MADV_DONTNEED);
	work(w);
	KEEP();
}

// A frame larger than any copy.
static NOINLINE void large(way w)
{
	char pad[122 << 10];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	work(w);
	__asm__ volatile("" : : "r"(pad) : "memory");
}

// The same, which calls nothing that does not return at once.
static NOINLINE void largeLeaf(way w)
{
	char pad[122 << 10];
	memset(pad, 1, sizeof pad);
	__asm__ volatile("" : : "r"(pad) : "memory");
	spinHere(period, w);
	__asm__ volatile("" : : "r"(pad) : "memory");
}

static void (*body)(way) = work;

// Functions that have a number, of one frame size.
#define DIGIT(name, digit, next) static NOINLINE void name(way w) { next(w << 2 | digit); KEEP(); }
DIGIT(digit1_one, 1, body)
DIGIT(digit2_two, 2, body)

static NOINLINE void alternateFrom(way w)
{
	if (rand() & 1)
		digit1_one(w);
	else
		digit2_two(w);
	KEEP();
}

void alternate(void)
{
	alternateFrom(0);
	KEEP();
}

// Recursion through two functions by chance.
static NOINLINE void digit1_left(int n, way w);
static NOINLINE void digit2_right(int n, way w);
#define RECURSION(name, digit) static NOINLINE void name(int n, way w) \
{ \
	w = w << 2 | digit; \
	if (n == 0) \
		work(w); \
	else if (rand() & 1) \
		digit1_left(n - 1, w); \
	else \
		digit2_right(n - 1, w); \
	KEEP(); \
}
RECURSION(digit1_left, 1)
RECURSION(digit2_right, 2)

static NOINLINE void recurse(void)
{
	digit1_left(6, 0);
	KEEP();
}

static jmp_buf back;

static NOINLINE void leave(way w)
{
	work(w);
	longjmp(back, 1);
}

DIGIT(digit1_leaver, 1, leave)
DIGIT(digit2_leaver, 2, leave)

static NOINLINE void jump(void)
{
	if (setjmp(back) == 0) {
		if (rand() & 1)
			digit1_leaver(0);
		else
			digit2_leaver(0);
	}
	KEEP();
}

// Coroutines on stacks that are used again.
static ucontext_t scheduler, coroutine;
static char stacks[2][128 << 10] __attribute__((aligned(4096)));

static NOINLINE void switchStacks(void)
{
	char *stack = stacks[rand() & 1];
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = sizeof stacks[0];
	coroutine.uc_link = &scheduler;
	makecontext(&coroutine, alternate, 0);
	swapcontext(&scheduler, &coroutine);
	KEEP();
}

// A handler that interrupts one of two functions.
static volatile way interrupted;

static NOINLINE void handle(int signal)
{
	(void)signal;
	alternateFrom(interrupted);
	KEEP();
}

static NOINLINE void interrupt(way w)
{
	interrupted = w;
	raise(SIGUSR1);
	KEEP();
}

DIGIT(digit1_raiser, 1, interrupt)
DIGIT(digit2_raiser, 2, interrupt)

static NOINLINE void raiseSignal(int flags)
{
	const struct sigaction sa = {.sa_handler = handle, .sa_flags = flags};
	const stack_t other = {.ss_sp = stacks[0], .ss_size = sizeof stacks[0]};
	sigaltstack(&other, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	if (rand() & 1)
		digit1_raiser(0);
	else
		digit2_raiser(0);
	KEEP();
}

static NOINLINE void signals(void)
{
	raiseSignal(0);
	KEEP();
}

static NOINLINE void otherStack(void)
{
	raiseSignal(SA_ONSTACK);
	KEEP();
}

// Processes that are short-lived copies of this one, with its PID 0 or always the same.
static NOINLINE void child(pid_t pid)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	if (pid != 0)
		args.set_tid = (uintptr_t)&pid, args.set_tid_size = 1;
	pid_t got = syscall(SYS_clone3, &args, sizeof args);
	if (got < 0)
		got = fork();
	if (got == 0) {
		srand(now());
		alternate();
		_exit(0);
	}
	waitpid(got, NULL, 0);
}

static NOINLINE void forks(void)
{
	child(0);
	KEEP();
}

static NOINLINE void samePID(void)
{
	static pid_t first;
	if (first == 0 && (first = fork()) == 0)
		_exit(0);
	waitpid(first, NULL, 0);
	child(first);
	KEEP();
}

// Threads on stacks that are used again.
static void *start(void *unused)
{
	alternate();
	KEEP();
	return unused;
}

static NOINLINE void threads(void)
{
	pthread_t t;
	if (pthread_create(&t, NULL, start, NULL) == 0)
		pthread_join(t, NULL);
	KEEP();
}

static NOINLINE void gaps(void)
{
	body = gap;
	alternate();
	KEEP();
}

static NOINLINE void largeFrame(void)
{
	body = large;
	alternate();
	KEEP();
}

static NOINLINE void leafFrame(void)
{
	body = largeLeaf;
	alternate();
	KEEP();
}

// For a program in another language, which goes on from one of two functions.
void callBack(void (*next)(way))
{
	body = next;
	alternate();
	KEEP();
}

static const struct {
	const char *name;
	void (*run)(void);
} modes[] = {
	{"callers", alternate}, {"recursion", recurse}, {"longjmp", jump}, {"coroutines", switchStacks},
	{"signals", signals}, {"altstack", otherStack}, {"fork", forks}, {"samepid", samePID},
	{"threads", threads}, {"gaps", gaps}, {"largeframe", largeFrame},
	{"leafframe", leafFrame},
};

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	period = atol(argv[2]) * 1000;
	srand(getpid());
	long end = now() + atol(argv[3]) * 1000000L;
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
		if (strcmp(argv[1], modes[i].name) == 0)
			while (now() < end)
				modes[i].run();
	return 0;
}
