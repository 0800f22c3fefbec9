package unwind

import "testing"

// TestSignalFrameHoldsAllRegisters is about what a walk knows below a signal
// restorer that has no CFI.
func TestSignalFrameHoldsAllRegisters(t *testing.T) {
	stack := Stack{Base: 0x1000, Data: make([]byte, 512)}
	for i := range sigcontext {
		stack.Data[40+8*i] = byte(100 + i)
	}
	var c checkpoint
	c.signal(3, 0x1000, &stack)
	for i, n := range sigcontext {
		if v, ok := c.regs.Get(n); !ok || v != uint64(100+i) {
			t.Errorf("register %d: %d, %v", n, v, ok)
		}
	}
	if c.frame != 3 || !c.exact {
		t.Errorf("%+v", c)
	}
}
