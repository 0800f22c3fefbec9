static volatile unsigned long sink[60][512] __attribute__((aligned(4096)));

void library_spin(int n) {
	for (int i = 0; i < n; i++)
		sink[i % 60][0] = i;
	__asm__ volatile("" : : "r"(__builtin_frame_address(0))); // so that it has a frame, which leads to main
}
