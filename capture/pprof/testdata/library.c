static volatile unsigned long sink;

void library_spin(int n) {
	for (int i = 0; i < n; i++)
		sink = sink + i;
}
