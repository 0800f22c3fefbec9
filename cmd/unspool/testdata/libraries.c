/* Loads and unloads the libraries from argv[2] on in turn, until each of so many calls through one of them has
 * touched a page: each library is mapped where another was, and its code is laid out in another way. */
#include "chain.h"
#include <dlfcn.h>

FRAME int libraries_leaf(int n)
{
	chain_again();
	return n + 1;
}

FRAME int libraries_with(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	int (*enter)(int (*)(int), int);

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&enter = dlsym(lib, "library_enter");
	int r = enter(libraries_leaf, 3);
	dlclose(lib);
	return r;
}

int main(int argc, char **argv)
{
	int r = 0;

	chain_begin(argc, argv);
	chain_say("main main libraries_with library_enter library_inner libraries_leaf");
	for (int i = 0; chain_left > 0; i++)
		r += libraries_with(argv[2 + i % (argc - 2)]);
	return r == -1;
}
