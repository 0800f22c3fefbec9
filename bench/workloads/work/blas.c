/* Products and solutions of equations: kernels in assembly, below several layers of C and Fortran. */
#include <stdlib.h>
#include <time.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
	    const int *, const double *, const int *, const double *, double *, const int *);
void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);
void dsyev_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *,
	    int *);

enum { N = 300 };

static double a[N * N], b[N * N], c[N * N], w[N], work[34 * N];
static int pivot[N];

static void fill(double *m)
{
	for (int i = 0; i < N * N; i++)
		m[i] = (double)rand() / RAND_MAX + (i % (N + 1) == 0);
}

int main(void)
{
	const int n = N, lwork = 34 * N;
	const double one = 1, zero = 0;
	int info = 0;
	time_t end = time(NULL) + 4;
	while (time(NULL) < end && info == 0) {
		fill(a);
		fill(b);
		for (int i = 0; i < 5; i++)
			dgemm_("N", "T", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
		dgesv_(&n, &n, a, &n, pivot, b, &n, &info);
		dsyev_("V", "U", &n, c, &n, w, work, &lwork, &info);
	}
	return info;
}
