package human

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                         "0 ms",
		999499 * time.Microsecond: "999 ms",
		999500 * time.Microsecond: "1.0 s", // rounding leads to the next unit
		119949 * time.Millisecond: "119.9 s",
		119950 * time.Millisecond: "2m0s",
		2*time.Hour + time.Second: "2h0m1s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
