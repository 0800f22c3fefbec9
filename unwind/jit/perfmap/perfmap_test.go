package perfmap

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// holes is a file that is mostly a hole.
type holes struct{ read int64 }

func (h *holes) Read(p []byte) (int, error) {
	clear(p)
	h.read += int64(len(p))
	return len(p), nil
}

// TestPerfMapThatIsAHole: what a sparse file has no lines in is not read to its end.
func TestPerfMapThatIsAHole(t *testing.T) {
	h, lines := new(holes), 0
	err := Read(io.MultiReader(strings.NewReader("1000 10 f\n"), h), func(uint64, uint64, []byte) error {
		lines++
		return nil
	})
	if !errors.Is(err, ErrNoLines) || lines != 1 || h.read > 2*maxWithoutLine {
		t.Errorf("%d lines of %d bytes: %v", lines, h.read, err)
	}
}
