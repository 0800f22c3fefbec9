package counts

import (
	"testing"
	"time"

	"unspool/perfring"
)

func TestRingsText(t *testing.T) {
	for _, c := range []struct {
		r    perfring.RingUse
		want string
	}{
		{perfring.RingUse{Each: 16 << 20, Total: 36<<20 + 16<<10, Stack: perfring.MaxStackSize,
			Lasts: 252 * time.Millisecond},
			"16.0 MiB for the samples of each CPU, 36.0 MiB in all, full after 252 ms of samples with 64.0 KiB of stack"},
		{perfring.RingUse{Each: 512 << 10, Total: 1 << 20, Stack: 32768},
			"512.0 KiB for the samples of each CPU, 1.0 MiB in all; how soon they are full is not known, as events are counted"},
	} {
		if got := RingsText(&c.r); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
