package asm

// Whoever is profiled can write code that takes long to read: paths that meet again and again, tables of
// jumps that lead to more of them. So there is a bound on the work for one question, which is a few
// milliseconds at most. It is counted in instructions, each as often as it is read, and in jumps.

const (
	// mostWork is for code in files. In real programs, functions of cryptographic libraries and codecs take up
	// to 77,000.
	mostWork = 1 << 17
	// mostInWindow is for generated code, of which less is read at a time.
	mostInWindow = 1 << 14
)

// spend takes n off the work that is left, and reports whether there was as much.
func (c *Code) spend(n int) bool {
	c.left -= n
	return c.left >= 0
}

// isSpent reports whether there was not enough left: nothing that was concluded may be kept.
func (c *Code) isSpent() bool { return c.left < 0 }
