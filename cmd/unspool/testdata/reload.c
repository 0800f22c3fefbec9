/* Loads and unloads the libraries from argv[2] on in turn: each is mapped where
 * another was, and its code is laid out in another way. */
#include "chain.h"
#include <dlfcn.h>

#ifndef TURNS
#define TURNS 1000000
#endif
#ifndef LEAST /* loads, however long they take */
#define LEAST 0
#endif

FRAME int reload_leaf(int n)
{
	for (int i = 0; i < TURNS; i++)
		KEEP();
	return n + 1;
}

FRAME int reload_with(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	int (*enter)(int (*)(int), int);

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&enter = dlsym(lib, "library_enter");
	int r = enter(reload_leaf, 3);
	dlclose(lib);
	return r;
}

int main(int argc, char **argv)
{
	int r = 0, loads = 0;

	chain_begin(argc, argv);
	chain_busy = 1;
	chain_say("main main reload_with library_enter library_inner reload_leaf");
	while (!chain_over || loads < LEAST)
		for (int i = 2; i < argc; i++, loads++)
			r += reload_with(argv[i]);
	printf("loads %d\n", loads);
	return r == -1;
}
