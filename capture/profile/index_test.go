package profile

import (
	"math/rand/v2"
	"testing"
)

// An index finds what a map of the same keys would, however it has grown.
func TestIndex(t *testing.T) {
	for _, expected := range []int{0, 1, 64, 100000} {
		r := rand.New(rand.NewPCG(1, 2))
		var keys []edge
		want := map[edge]int32{}
		x := newIndex(expected, func(i int32) edge { return keys[i] })
		for range 20000 {
			k := edge{r.Int32N(100) - 1, r.Int32N(100)}
			i, ok := x.find(k)
			if j, known := want[k]; ok != known || i != j {
				t.Fatalf("expected %d: %v is entry %d, %v; want %d, %v", expected, k, i, ok, j, known)
			}
			if !ok {
				want[k] = int32(len(keys))
				keys = append(keys, k)
				x.add(k)
			}
		}
	}
}
