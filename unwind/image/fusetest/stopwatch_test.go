package fusetest

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := Stopwatch()
		time.Sleep(1500 * time.Millisecond)
		if took := stop(); took != 1500*time.Millisecond {
			t.Errorf("a sleep of 1.5 s took %v", took)
		}
	})
}
