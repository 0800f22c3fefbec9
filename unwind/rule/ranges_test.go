package rule

import (
	"math/rand/v2"
	"testing"
)

// TestRanges: a rule is found where it holds and nowhere else, at once for the offset it was put for; and
// there is a bound for the memory.
func TestRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const end = 64 << 20
	var starts []uint32 // of ranges that follow one another, with holes
	for at := uint32(0); at < end; at += 1 + rng.Uint32N(3<<blockShift)>>rng.Uint32N(10) {
		starts = append(starts, at)
	}
	var r Ranges
	if r.Get(0) != None || r.Size() != 0 {
		t.Error("an empty one is not")
	}
	hits, neighbours := 0, 0
	for range 200_000 {
		i := rng.IntN(len(starts) - 1)
		from, to := starts[i], starts[i+1]
		if i%7 == 0 || from+1 >= to {
			continue // a hole
		}
		to--
		off := from + rng.Uint32N(to-from)
		want := FromSP.With(1, uint32(i&MaxCFA))
		switch got := r.Get(off); {
		case got == want:
			hits++
		case got != None:
			t.Fatalf("%#x has the rule %v, want %v", off, got, want)
		default:
			r.Put(off, from, to, want)
			if r.Get(off) != want {
				t.Fatalf("%#x was put and is not there", off)
			}
			if near := max(from, off&^(1<<blockShift-1)); r.Get(near) != want {
				t.Fatalf("%#x is in its block and its range, and is not there", near)
			}
			neighbours++
		}
		if hole := starts[i+1] - 1; r.Get(hole) != None {
			t.Fatalf("%#x is in no range, and has the rule %v", hole, r.Get(hole))
		}
	}
	if hits < 1000 || neighbours < 1000 {
		t.Errorf("%d hits, %d others", hits, neighbours)
	}
	if most := mostBlocks * 64; r.Size() != most {
		t.Errorf("%d bytes, want %d", r.Size(), most)
	}
}
