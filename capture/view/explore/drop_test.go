package explore

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// TestDropComesFirst: privileges are dropped while the socket is open, and nothing is served if that fails.
func TestDropComesFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0") // an address whose ports no other test takes
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	t.Setenv("TMPDIR", t.TempDir())
	failed := errors.New("no")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = Serve(ctx, small, Options{
		Addr:  addr,
		Ready: func(string) { t.Error("served") },
		Drop: func() error {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Errorf("not listened at yet: %v", err)
				return failed
			}
			c.Close()
			if made, _ := os.ReadDir(os.TempDir()); len(made) > 0 {
				t.Errorf("made before: %v", made)
			}
			return failed
		},
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("served after that")
	}
}
