package opener

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
)

// TestKilledOpenerIsTold: that the opener has ended is an event, unless it was told to end. It is said of the file that
// it was to create.
func TestKilledOpenerIsTold(t *testing.T) {
	t.Parallel()
	killed, told := startOpener(t), startOpener(t)
	path := filepath.Join(t.TempDir(), "out")
	place, err := output.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	if err := place.HandOver(killed.GrantOutput); err != nil {
		t.Fatal(err)
	}
	if err := killed.process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-killed.Gone():
	case <-time.After(time.Minute):
		t.Fatal("nothing tells of the end of a killed opener")
	}
	if err := killed.Seal(true); !errors.Is(err, ErrEnded) {
		t.Errorf("seal: %v", err)
	}
	_, err = place.Create()
	if named := (*fs.PathError)(nil); !errors.As(err, &named) || named.Path != path || !errors.Is(err, ErrEnded) {
		t.Errorf("create: %v", err)
	}
	told.Close()
	if err := told.process.Signal(unix.SIGKILL); err == nil {
		_, _ = told.process.Wait()
	}
	select {
	case <-told.Gone():
		t.Error("an opener that was told to end counts as killed")
	default:
	}
}

// TestClosedTwice closes a client again, when its descriptors are those of other files.
func TestClosedTwice(t *testing.T) {
	c, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Numbers(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	var others []*os.File
	for range 16 {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, file)
	}
	c.Close()
	if _, err := c.Numbers(0); !errors.Is(err, ErrEnded) {
		t.Errorf("a client that is closed says %v", err)
	}
	for _, file := range others {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}
