package opener

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKilledOpenerIsTold: that the opener has ended is an event, unless it was told to end.
func TestKilledOpenerIsTold(t *testing.T) {
	t.Parallel()
	killed, told := startOpener(t), startOpener(t)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-killed.Gone():
	case <-time.After(time.Minute):
		t.Fatal("nothing tells of the end of a killed opener")
	}
	if err := killed.Seal(); !errors.Is(err, ErrEnded) {
		t.Errorf("seal: %v", err)
	}
	told.Close()
	if err := told.cmd.Process.Signal(unix.SIGKILL); err == nil {
		_ = told.cmd.Wait()
	}
	select {
	case <-told.Gone():
		t.Error("an opener that was told to end counts as killed")
	default:
	}
}
