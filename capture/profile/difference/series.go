package difference

import (
	"cmp"
	"math/bits"
	"slices"

	"unspool/capture/profile"
)

// Blocks is into how many parts of equal length the time of each recording is divided, to see what comes in
// bursts: see doc.go.
const Blocks = 128

// series are the samples of a pair in one run by block.
type series struct {
	timed  bool
	points []point // by block, then by node and thread
	counts [Blocks]float64
}

// point is samples of a stack in a thread, in a block.
type point struct {
	node, thread int32
	count        uint32
	block        uint8
}

// BlockOf is the block of a time after the start of a recording of some length, both in ns.
func BlockOf(after, length uint64) uint8 {
	high, low := bits.Mul64(min(after, length), Blocks)
	b, _ := bits.Div64(high, low, length+1) // the last sample is in the last block
	return uint8(b)
}

// series collects the samples of a run. Where these have no times, all are in one block.
func (m *Merged) series(pair, side, run int) (*series, error) {
	event, s, r := m.Pairs[pair].Event[side], &series{}, &m.Runs[side][run]
	length := uint64(max(0, r.Duration))
	threads := m.threads[side][run]
	if s.timed = r.Timeline != nil && length > 0; !s.timed {
		for i := range r.Samples {
			if one := &r.Samples[i]; m.events[side][run][one.Event] == event {
				s.add(point{node: m.nodes[side][run][one.Node], thread: threads[one.Thread]}, one.Count)
			}
		}
		s.merge()
		return s, nil
	}
	sorted := 0 // points, at the last merge
	for own, thread := range threads {
		err := m.points(place{side, run, int32(own)}, func(p profile.Point) error {
			if p.Event != event {
				return nil
			}
			s.add(point{node: p.Node, thread: thread, block: BlockOf(p.Time, length)}, 1)
			if len(s.points) > 2*sorted+1<<16 {
				s.merge()
				sorted = len(s.points)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.merge()
	return s, nil
}

func (s *series) add(p point, count uint64) {
	s.counts[p.block] += float64(count)
	for ; count > 0; count -= uint64(p.count) {
		p.count = uint32(min(count, 1<<31))
		s.points = append(s.points, p)
	}
}

// merge sorts the points and makes one of those of a stack, a thread and a block.
func (s *series) merge() {
	slices.SortFunc(s.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.node, b.node), cmp.Compare(a.thread, b.thread))
	})
	merged := s.points[:0]
	for _, p := range s.points {
		if n := len(merged); n > 0 {
			last := &merged[n-1]
			if last.node == p.node && last.thread == p.thread && last.block == p.block &&
				uint64(last.count)+uint64(p.count) < 1<<32 {
				last.count += p.count
				continue
			}
		}
		merged = append(merged, p)
	}
	s.points = merged
}

// spread is the samples of a row in one run, and how they vary from one block to the next.
type spread struct {
	samples float64
	squares float64 // the sum of squares of how much the row's samples differ between a block and the next
	cross   float64 // and the sum of its products with how much all samples differ
}

// Rows are what is compared, such as functions: of a stack in a thread, the row of its leaf (self, -1 for
// none), and all rows on it, each once.
type Rows struct {
	N  int
	Of func(thread, leaf int32, add func(row int32))
}

// spreads adds the samples up by rows.
func (s *series) spreads(rows Rows) []spread {
	sums := make([]spread, rows.N)
	now, before := make([]float64, rows.N), make([]float64, rows.N)
	var touched, earlier []int32
	add := func(row int32, n float64) {
		if now[row] == 0 {
			touched = append(touched, row)
		}
		now[row] += n
	}
	at, last := 0, 0.0
	for b := range Blocks {
		for ; at < len(s.points) && int(s.points[at].block) == b; at++ {
			p := &s.points[at]
			rows.Of(p.thread, p.node, func(row int32) { add(row, float64(p.count)) })
		}
		all := s.counts[b] - last
		step := func(row int32) {
			d := now[row] - before[row]
			sums[row].squares += d * d
			sums[row].cross += d * all
		}
		for _, row := range touched {
			sums[row].samples += now[row]
			if b > 0 {
				step(row)
			}
		}
		for _, row := range earlier {
			if b > 0 && now[row] == 0 {
				step(row)
			}
			before[row] = 0
		}
		for _, row := range touched {
			before[row], now[row] = now[row], 0
		}
		touched, earlier = earlier[:0], touched
		last = s.counts[b]
	}
	return sums
}

// squares is the sum of squares of how much all samples differ between a block and the next.
func (s *series) squares() (sum float64) {
	for b := 1; b < Blocks; b++ {
		d := s.counts[b] - s.counts[b-1]
		sum += d * d
	}
	return sum
}

// perDifference turns a sum of squares of differences between blocks into the variance of the whole.
const perDifference = Blocks / (2.0 * (Blocks - 1))

// bursts is by how much the variance of a share of the samples is larger than that of samples that are drawn
// by lot, and likewise that of the samples' number. Both are at least 1.
func (v *spread) bursts(s *series, all, squares float64) (share, number float64) {
	if !s.timed || v.samples == 0 {
		return 1, 1
	}
	number = max(1, perDifference*v.squares/v.samples)
	p := v.samples / all
	if p >= 1 {
		return 1, number
	}
	variance := perDifference * (v.squares - 2*p*v.cross + p*p*squares)
	return max(1, variance/(all*p*(1-p))), number
}
