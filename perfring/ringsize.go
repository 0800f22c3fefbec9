package perfring

import (
	"fmt"
	"math/bits"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A ring for samples has room for those of ringLasts, if all rings together may take as much: a recorder of ordinary
// priority may wait as long for a CPU where others are busy.
const (
	ringLasts = time.Second / 4

	// All rings together take mostForRings bytes at most, and one of ofMemory parts of the memory, unless their size is
	// asked for.
	mostForRings = 256 << 20
	ofMemory     = 16
	// largestRing bounds what is asked for as well.
	largestRing = 1 << 30
	// leastRing is the size at low rates. The kernel takes the first samples of an event faster than at its rate, until
	// it knows how fast the event is: some ten, of which each has a stack.
	leastRing = 1 << 20

	// enoughOthers bytes hold some ten thousand records other than samples, as many as a program that renames its
	// threads all the time causes in 40 ms, at whatever rate samples are taken. If memory is scarce, these rings have an
	// eighth of the others at least, and leastOthers.
	enoughOthers = 2 << 20
	leastOthers  = 32 << 10

	// besidesStack is how many bytes a sample has besides the copy of its stack: fields, registers, and a callchain of up
	// to 90 addresses.
	besidesStack = 1 << 10
	// Copies become smaller by steps of copyStep.
	copyStep = 1 << 10
	// highestRate is that of the fastest sampling that is reckoned with.
	highestRate = 1 << 20
)

// RingNeeds are what the rings of a recording are to hold, and what there is for them.
type RingNeeds struct {
	Rate uint64 // samples a second on each CPU, not 0
	// Counted means that Rate is not known, as events are counted. They can come at once by thousands, so small copies are
	// no reason for a small ring.
	Counted bool
	Stack   int    // bytes of a stack to copy, if there is room
	Least   int    // how small copies may become where there is none; 0: they do not
	Sampled int    // CPUs with a ring for samples
	CPUs    int    // with a ring for all other records
	Memory  uint64 // bytes of the machine; 0: not known
	Asked   int    // bytes of a ring for samples that are asked for; 0: none
}

// RingSizes are the sizes of the rings of each CPU in bytes, powers of two, and how much of a stack is copied.
type RingSizes struct {
	Samples int // of the ring for samples
	Others  int // of that for all other records
	Stack   int // bytes of a stack that are copied at most
}

// Locked returns how many bytes of memory the rings of a CPU lock: each has a page for its positions.
func (s RingSizes) Locked() int { return s.Samples + s.Others + 2*os.Getpagesize() }

// Lasts is how long it takes at a rate of samples a second until a ring for samples is full, if each has all of its
// copy; 0 for a rate of 0, which is not known.
func (s RingSizes) Lasts(rate uint64) time.Duration { return lasts(s.Samples, rate, s.Stack) }

// Sizes returns the sizes of rings by their needs.
func (n *RingNeeds) Sizes() (s RingSizes) {
	if n.Asked > 0 {
		n.set(&s, max(1<<(bits.Len(uint(min(n.Asked, largestRing)))-1), n.leastRing()))
		return s
	}
	n.set(&s, min(max(powerOfTwo(n.hold()), leastRing), largestRing))
	most := n.most()
	for n.Total(s) > most && n.shrink(&s) {
	}
	for more := s; more.Others < enoughOthers; s = more { // what is left is for the other records
		if more.Others *= 2; n.Total(more) > most {
			break
		}
	}
	return s
}

// Total returns how many bytes all rings take.
func (n *RingNeeds) Total(s RingSizes) int {
	page := os.Getpagesize()
	return n.Sampled*(s.Samples+page) + n.CPUs*(s.Others+page)
}

// most is how many bytes all rings may take.
func (n *RingNeeds) most() int {
	if n.Memory == 0 {
		return mostForRings
	}
	return int(min(mostForRings, n.Memory/ofMemory))
}

// shrink chooses the next smaller sizes, and reports whether there are any.
func (n *RingNeeds) shrink(s *RingSizes) bool {
	if others := othersBeside(s.Samples); s.Others > others {
		s.Others = others
		return true
	}
	if s.Samples/2 < n.leastRing() {
		return false
	}
	n.set(s, s.Samples/2)
	return true
}

// set chooses what goes with a ring for samples of some size.
func (n *RingNeeds) set(s *RingSizes, samples int) {
	*s = RingSizes{Samples: samples, Others: othersBeside(samples), Stack: n.Stack}
	if n.Least > 0 && samples < n.hold() {
		each := uint64(samples) * uint64(time.Second/ringLasts) / n.rate()
		s.Stack = min(max((int(each)-besidesStack)&^(copyStep-1), n.Least), n.Stack)
	}
}

// othersBeside is the least size of a ring for other records.
func othersBeside(samples int) int { return min(max(samples/8, leastOthers), enoughOthers) }

// hold is how many bytes the samples of ringLasts have.
func (n *RingNeeds) hold() int {
	stack := n.Stack
	if n.Counted {
		stack = MaxStackSize
	}
	return int(n.rate() * sampleSize(stack) / uint64(time.Second/ringLasts))
}

func (n *RingNeeds) rate() uint64 { return min(max(n.Rate, 1), highestRate) }

// leastRing is the size of the smallest ring that holds two samples.
func (n *RingNeeds) leastRing() int {
	stack := n.Stack
	if n.Least > 0 {
		stack = min(stack, n.Least)
	}
	return powerOfTwo(2 * (stack + 4096))
}

// sampleSize is how many bytes a sample has. The kernel copies less of a stack if a record would be too large.
func sampleSize(stack int) uint64 { return uint64(min(stack+besidesStack, MaxRecordSize)) }

// powerOfTwo is the least one that is not below n.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// size chooses the sizes of rings on CPUs.
func (op *opener) size(cpus []int) {
	for _, cpu := range cpus {
		if op.hasEvents(cpu) {
			op.needs.CPUs++
			if op.target.samplesOn(cpu) {
				op.needs.Sampled++
			}
		}
	}
	op.sizes = op.needs.Sizes()
	op.wanted, op.opts.StackSize = op.sizes, op.sizes.Stack
	if page := os.Getpagesize(); op.opts.Pages > 0 && op.sizes.Samples > op.needs.Asked {
		op.note("ring of %d pages a CPU instead of %d: two samples with their stacks must fit", op.sizes.Samples/page,
			op.opts.Pages)
	}
}

// shrink chooses smaller rings, and reports whether there are any.
func (op *opener) shrink() bool {
	ok := op.needs.shrink(&op.sizes)
	op.opts.StackSize = op.sizes.Stack
	return ok
}

// noteSizes tells of rings, and of copies, that are smaller than they were to be.
func (op *opener) noteSizes() {
	ring, copies := op.sizes.Samples>>10, ""
	isLess := op.sizes.Stack < op.needs.Stack
	if isLess {
		copies = fmt.Sprintf(", and %d KiB of each stack are copied instead of %d", op.sizes.Stack>>10, kib(op.needs.Stack))
	}
	switch {
	case op.sizes.Samples < op.wanted.Samples:
		op.note("ring of %d KiB a CPU instead of %d%s: no more memory may be locked; "+
			"sysctl kernel.perf_event_mlock_kb=%d makes room", ring, op.wanted.Samples>>10, copies, op.wanted.Locked()>>10)
	case isLess:
		op.note("%d KiB of each stack are copied instead of %d, as rings of %d KiB a CPU hold more of these samples; "+
			"the rest is read when a stack is sampled (--stack-size or -m copy more)", op.sizes.Stack>>10,
			kib(op.needs.Stack), ring)
	}
}

// kib is how many KiB some bytes are, rounded up.
func kib(n int) int { return (n + 1<<10 - 1) >> 10 }

// RingUse is the memory that rings take, and how long it lasts.
type RingUse struct {
	Each  int           // bytes of the ring for samples of a CPU
	Total int           // bytes of all rings, those for other records included
	Stack int           // bytes of a stack that are copied at most
	Lasts time.Duration // until a ring is full of samples, if each has all of its copy; 0: not known
}

// RingUse returns what the rings take now: CPUs that come online get some.
func (s *Source) RingUse() RingUse {
	u := RingUse{Each: s.RingSize(), Stack: s.StackSize(), Lasts: lasts(s.RingSize(), s.rate, s.StackSize())}
	for _, q := range s.merger.queues {
		u.Total += len(q.data) + os.Getpagesize()
	}
	return u
}

// lasts is how long it takes at a rate until a ring is full, 0 for a rate of 0, which is not known.
func lasts(ring int, rate uint64, stack int) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(uint64(ring) * uint64(time.Second) / (min(rate, highestRate) * sampleSize(stack)))
}

// DefaultRings returns the rings that a recording of all of this machine's CPUs has if nothing else is asked for, and
// nobody reads the rest of stacks.
func DefaultRings() (RingSizes, RingUse) {
	n := RingNeeds{Rate: defaultFreq, Stack: MaxStackSize, Memory: memory()}
	cpus, err := hostSystem.onlineCPUs()
	if n.CPUs = len(cpus); err != nil {
		n.CPUs = 1
	}
	n.Sampled = n.CPUs
	s := n.Sizes()
	return s, RingUse{Each: s.Samples, Total: n.Total(s), Stack: s.Stack, Lasts: s.Lasts(n.Rate)}
}

// memory is how many bytes of memory the machine has, 0 where that is not known.
func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}

// Rate returns how many samples a second the events cause on a CPU, and whether that is known: an event that is counted
// is sampled as often as it happens. It is taken for the default rate then.
func (o *Options) Rate() (rate uint64, isKnown bool) {
	freq, isDefault := o.Freq, o.Freq == 0 && o.Period == 0
	if freq == 0 {
		freq = defaultFreq
	}
	isKnown = o.Period == 0
	onSome := make(map[int]uint64) // by CPU: of a hybrid machine, each has one of the events
	most := uint64(0)
	for i := range o.Events {
		e := &o.Events[i]
		isKnown = isKnown && !(isDefault && e.sampledEach())
		if e.CPUs == nil {
			rate += min(freq, highestRate)
		}
		for _, cpu := range e.CPUs {
			onSome[cpu] += min(freq, highestRate)
			most = max(most, onSome[cpu])
		}
	}
	return rate + most, isKnown
}

// rateOf is the rate of events that are open, 0 if it is not known.
func rateOf(attrs []Attr) (rate uint64) {
	for i := range attrs {
		a := &attrs[i].PerfEventAttr
		if a.Bits&unix.PerfBitFreq == 0 {
			return 0
		}
		rate += a.Sample
	}
	return rate
}
