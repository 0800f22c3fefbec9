package image

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A page that is not in the page cache is read by another goroutine, and pages in the cache are still read
// directly: the pages of a large program come and go.
func TestPageThatIsNotInMemory(t *testing.T) {
	t.Parallel()
	const size = 24 * chunkSize // more than are kept
	want := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(want)
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	store := NewStore("")
	if err := store.find.files.room(nobody); err != nil {
		t.Fatal(err)
	}
	src, err := store.find.identify(file, nobody, 0, opener{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	c := contents{image: &Image{store: store, Path: path, source: src}}
	got := make([]byte, size)
	for at := size - 1000; at >= 0; at -= 1000 {
		if n, err := c.ReadAt(got[at:at+1000], int64(at)); n != 1000 || err != nil {
			t.Fatalf("%d bytes at %d: %v", n, at, err)
		}
	}
	if n := size % 1000; !bytes.Equal(got[n:], want[n:]) {
		t.Error("what was read is not in the file")
	}
	if c.slow {
		if _, err := src.readNow(got[:1], 0); err == unix.EOPNOTSUPP {
			t.Skip("this file system does not say what is in memory")
		}
		t.Error("nothing is read directly any more")
	}
	for i := range c.chunks {
		if k := &c.chunks[i]; k.data != nil && !bytes.Equal(k.data, want[k.at:][:len(k.data)]) {
			t.Errorf("the chunk at %#x has other bytes than the file", k.at)
		}
	}
	c.forget()
	if left := c.image.store.code.left.Load(); left != maxOfCode {
		t.Errorf("%d bytes were not given back", maxOfCode-left)
	}
}

// TestEndOfWhatIsInMemory reads up to the end and beyond it, as of the vDSO.
func TestEndOfWhatIsInMemory(t *testing.T) {
	t.Parallel()
	const text = "12345678"
	c := contents{image: &Image{source: inMemory([]byte(text))}}
	for _, want := range []struct {
		at, size, n int
		err         error
	}{
		{0, 8, 8, nil}, {7, 1, 1, nil}, {5, 2, 2, nil}, {8, 0, 0, nil},
		{6, 4, 2, io.EOF}, {7, 2, 1, io.EOF}, {8, 1, 0, io.EOF}, {9, 1, 0, io.EOF}, {-1, 1, 0, io.EOF},
	} {
		got := make([]byte, want.size)
		n, err := c.ReadAt(got, int64(want.at))
		if n != want.n || err != want.err || n > 0 && string(got[:n]) != text[want.at:][:n] {
			t.Fatalf("%d bytes at %d: %q, %v; want %d, %v", want.size, want.at, got[:n], err, want.n, want.err)
		}
	}
}
