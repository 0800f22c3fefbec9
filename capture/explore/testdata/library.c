static volatile unsigned long sink;

void library_spin(int n) {
	for (int i = 0; i < n; i++)
		sink = sink + i;
	__asm__ volatile("" : : "r"(__builtin_frame_address(0))); // so that it has a frame, which leads to main
}
