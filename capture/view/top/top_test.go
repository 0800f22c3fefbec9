package top

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/perfring"
)

// TestPlainWritesTheRest has a recording end before its first table is due.
func TestPlainWritesTheRest(t *testing.T) {
	broken := errors.New("broken")
	feed := func(fn func(*profile.Profile) error) error {
		if err := fn(made(t, time.Duration(perfring.Now()), stack{compiler, []int32{mainFrame}, 1})); err != nil {
			return err
		}
		return broken
	}
	var b strings.Builder
	if err := Plain(context.Background(), &b, feed, Options{Every: time.Hour}); err != broken {
		t.Errorf("error %v", err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 5 || !strings.Contains(lines[0], "  1 sample in ") ||
		!strings.HasPrefix(lines[2], "100.0%  100.0%  main") {
		t.Errorf("written:\n%s", b.String())
	}
}

// TestPlainEnds has a recording that does not end.
func TestPlainEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	never := make(chan struct{})
	defer close(never)
	feed := func(func(*profile.Profile) error) error { <-never; return nil }
	b := written{cancel: cancel}
	if err := Plain(ctx, &b, feed, Options{Every: 10 * time.Millisecond}); err != nil {
		t.Error(err)
	}
	if year, _, _ := strings.Cut(b.text.String(), "-"); len(year) != 4 {
		t.Errorf("written:\n%s", b.text.String())
	}
	full := errors.New("full")
	err := Plain(context.Background(), failing{full}, feed, Options{Every: time.Millisecond})
	if err != full {
		t.Errorf("error %v, want the writer's", err)
	}
}

// written ends a recording once something is written.
type written struct {
	text   strings.Builder
	cancel func()
}

func (w *written) Write(b []byte) (int, error) {
	defer w.cancel()
	return w.text.Write(b)
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }
