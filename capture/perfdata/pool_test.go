package perfdata

import (
	"runtime"
	"testing"
)

// What a recording keeps back in rounds of many megabytes is in no memory that the garbage collector counts,
// is used again, and is given back when the recording is closed.
func TestBlocksAreOutsideOfTheHeap(t *testing.T) {
	const many = 64
	var p pool
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var taken []*block
	for i := range many {
		b := p.take()
		if len(b.data) != blockSize || cap(b.data) != blockSize {
			t.Fatalf("block %d has %d bytes, and room for %d", i, len(b.data), cap(b.data))
		}
		for at := 0; at < blockSize; at += 4096 {
			if b.data[at] != 0 {
				t.Fatalf("block %d is another one's, too", i)
			}
			b.data[at] = 1
		}
		taken = append(taken, b)
	}
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(4*blockSize); got > most {
		t.Errorf("%d blocks took %d bytes of the heap, want %d at most", many, got, most)
	}
	mapped := len(p.arenas)
	p.free = taken
	for range many {
		p.take()
	}
	if len(p.arenas) != mapped || mapped > many*blockSize/arenaSize {
		t.Errorf("%d pieces of memory were mapped, and %d for blocks that are used again", mapped,
			len(p.arenas)-mapped)
	}
	p.release()
	if p.take(); len(p.arenas) > 0 {
		t.Error("memory is mapped for the first block")
	}
}

func TestClosedReaderHasNothingToRead(t *testing.T) {
	r := stream(t, 1, 2, 3)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if rec, err := r.Next(); err == nil {
		t.Errorf("a record of %d bytes after Close", len(rec))
	}
	if err := r.Payload(func([]byte) error { return nil }); err != nil {
		t.Error(err)
	}
}
