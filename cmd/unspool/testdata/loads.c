/* Loads and unloads the libraries from argv[2] on, one after the other, twice, and is at the end of its chain each time.
 * It stops twenty times meanwhile. */
#include "chain.h"
#include <dlfcn.h>

FRAME int loads_leaf(int n)
{
	(void)chain_again();
	return n + 1;
}

FRAME int loads_with(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	int (*enter)(int (*)(int), int);

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&enter = dlsym(lib, "library_enter");
	int r = enter(loads_leaf, 3);
	dlclose(lib);
	return r;
}

int main(int argc, char **argv)
{
	int r = 0;

	chain_begin(argc, argv);
	chain_say("main main loads_with library_enter library_inner loads_leaf");
	for (int i = 0; i < 2 * (argc - 2); i++) {
		r += loads_with(argv[2 + i % (argc - 2)]);
		if ((i + 1) % ((argc - 2) / 10) == 0)
			raise(SIGSTOP);
	}
	return r == -1;
}
