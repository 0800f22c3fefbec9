package profile

import (
	"errors"
	"testing"
)

// TestPlantingKeepsTheOrder hands on samples with stacks of all lengths: each arrives once, in its turn, with
// its own frames.
func TestPlantingKeepsTheOrder(t *testing.T) {
	const samples = 3*batches*batchSize + 5
	n := 0
	p := plantBeside(func(s *stacked, frames []int32) error {
		if s.time != uint64(n) || len(frames) != n%100 {
			t.Errorf("sample %d of %d frames instead of %d", s.time, len(frames), n)
		}
		for _, f := range frames {
			if f != int32(n) {
				t.Errorf("sample %d has frame %d", n, f)
				break
			}
		}
		n++
		return nil
	})
	frames := make([]int32, 100)
	for i := range samples {
		for j := range frames {
			frames[j] = int32(i)
		}
		if err := p.add(&stacked{time: uint64(i)}, frames[:i%100]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.end(); err != nil || n != samples {
		t.Errorf("%d samples of %d, %v", n, samples, err)
	}
}

// TestPlantingFails makes the tree fail at once, or at the end. The reader gets the error, and does not wait.
func TestPlantingFails(t *testing.T) {
	for _, good := range []int{0, 5*batchSize + 1} {
		full, n := errors.New("no space left"), 0
		p := plantBeside(func(*stacked, []int32) error {
			if n++; n > good {
				return full
			}
			return nil
		})
		var err error
		for i := 0; err == nil && i < 100*batchSize; i++ {
			err = p.add(&stacked{}, nil)
		}
		if last := p.end(); err != full || last != full || n != good+1 {
			t.Errorf("after %d samples: %v, then %v, %d planted", good, err, last, n)
		}
	}
}
