/* A library whose code is PAD bytes further on. */
__asm__(".text\n.skip " PAD ", 0x90\n");

void enter(void (*leaf)(void))
{
	volatile char local[64];
	local[0] = 1;
	leaf();
	local[1] = 1;
}
