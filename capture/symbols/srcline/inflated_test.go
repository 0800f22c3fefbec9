package srcline

import "testing"

// TestInflatedSectionsOfAFile bounds what compressed sections hold together by what the file has on a disk.
func TestInflatedSectionsOfAFile(t *testing.T) {
	for _, c := range []struct {
		size, stored int64
		want         uint64
	}{
		{0, 0, maxSmall},
		{24 << 20, 24 << 20, maxSmall + 12*24<<20},
		{24 << 20, 0, maxSmall + 12*24<<20},
		{4 << 30, 24 << 20, maxSmall + 12*24<<20}, // sparse
		{600 << 20, 600 << 20, maxInflated},
		{-1, -1, maxSmall},
	} {
		if got := (&File{Size: c.size, Stored: c.stored}).mostInflated(); got != c.want {
			t.Errorf("%d bytes, %d on a disk: %d, want %d", c.size, c.stored, got, c.want)
		}
	}
}
