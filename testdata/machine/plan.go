package machine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Plan is what is simulated. All else is drawn from its Seed.
type Plan struct {
	Seed      uint64
	CPUs      int
	Processes int           // that run when the recording begins
	Threads   int           // of a process, at most
	Time      time.Duration // of the recording
	Copy      int           // bytes of stack that are copied
	Ring      int           // bytes of a ring, a power of two
	Join      bool          // stacks that the copy cuts off are completed
	Reads     bool          // also by reading them when they are sampled
	Output    string        // where the recording goes: one of Outputs
	Opener    bool          // answers for /proc and files
	Faults    []string

	// What makes a machine a large one, see scale.go; 0 for others.
	Rate   int           // processes that are started in a second
	Maps   int           // mappings of one process
	Period time.Duration // the mean time between two things that happen on a CPU
	Hz     int           // samples a second on each CPU, at equal times: nothing else happens
	Others int           // bytes of a ring for records other than samples; 0: as many as go with Ring
}

// Faults are the kinds of fault. Each happens in a part of the cases where it could.
var Faults = []string{
	"inverted",  // records are written up to 30 µs late
	"lost",      // the rings are small
	"throttled", // the kernel holds events back
	"trailers",  // records are longer than what was written
	"exec",      // processes execute another program
	"fork",      // processes fork, and go on with the same stack
	"reuse",     // PIDs are given again at once
	"vanish",    // processes end while they are read
	"dlclose",   // a library makes room for another one, at the same address
	"fixed",     // programs and libraries are mapped at the same addresses in all processes
	"replaced",  // files are replaced by others at the same path
	"slow",      // files are opened late
	"hang",      // files are not opened for ten seconds
	"refused",   // files may not be opened
	"stall",     // the recorder does not get a CPU for a while
	"offline",   // a CPU goes away
	"strange",   // code whose CFI does not lead to its callers
	"alike",     // few functions, with frames of one size: a frame comes back with other callers
	"limit",     // stacks are deeper than is asked for
	"exits",     // samples of tasks that have exited
	"ran",       // threads get on while their stacks are read
	"moved",     // threads get on on another CPU before that
	"unread",    // stacks are not read
	"readlate",  // stacks are read when their threads have got on
	"readlong",  // stacks are read in time, which takes longer than their samples wait
	"readshort", // reads of memory end early
	"realtime",  // threads have real-time priority, so nothing keeps them from getting on
	"jit",       // processes generate code, with frame pointers
	"rejit",     // and other code, which they replace
	"events",    // a recording that is converted has two events
	"disorder",  // its records are in any order, but for its rounds
	"cut",       // it is cut short
	"signal",    // threads handle signals, on stacks of their own
	"samestack", // threads get the stacks of others that have ended
	// Those in ofOpener.
	"late",       // answers come late
	"unanswered", // or never
	"wrong",      // are cut, others, or no answers, with descriptors too many, too few, or of other files
	"served",     // files are on servers: the opener reads them
	"dead",       // the opener dies
}

// ofOpener are those of an opener, which answers for /proc and files.
var ofOpener = []string{"late", "unanswered", "wrong", "served", "dead"}

// complete are those that do not keep a stack from being complete, if records have told of its process from the
// beginning; told are those of them that do otherwise.
var (
	complete = append(told, "inverted", "throttled", "trailers", "offline", "stall", "fork", "exits", "alike", "ran",
		"moved", "unread", "readlate", "readlong", "readshort", "realtime", "samestack")
	told = []string{"exec", "reuse", "vanish", "dlclose", "fixed"}
)

// Outputs are where a recording can go: to the judge alone, by the session; and by live.Record also to a file, to
// several files by turns, and to a file that has the last of it; or to a file with stacks in it, which is converted.
var Outputs = []string{"judge", "file", "segments", "flight", "convert"}

// Draw draws a plan.
func Draw(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, CPUs: 1 + r.IntN(4), Processes: 1 + r.IntN(5), Threads: 1 + r.IntN(4),
		Time: time.Duration(50+r.IntN(300)) * time.Millisecond, Copy: 512 << r.IntN(5), Ring: 1 << 21, Join: r.IntN(2) == 0}
	odds := [3]int{3, 3, 12}[r.IntN(3)] // where few things go wrong, more has to be right
	for _, f := range Faults {
		if r.IntN(odds) == 0 {
			p.Faults = append(p.Faults, f)
		}
	}
	p.Output = Outputs[r.IntN(len(Outputs))]
	p.Reads = p.Join && r.IntN(3) > 0
	p.Opener = r.IntN(3) > 0
	simple := r.IntN(3) == 0 // so that stacks have to be complete
	p.Faults = slices.DeleteFunc(p.Faults, func(f string) bool {
		return !p.Opener && slices.Contains(ofOpener, f) || simple && !slices.Contains(complete, f)
	})
	if p.has("lost") {
		p.Ring = 1 << (12 + r.IntN(5))
		p.Copy = min(p.Copy, p.Ring/4)
	}
	return p
}

func (p *Plan) has(fault string) bool { return slices.Contains(p.Faults, fault) }

// String returns the plan as a line that Parse reads.
func (p Plan) String() string {
	line := fmt.Sprintf("seed=%d cpus=%d processes=%d threads=%d ms=%d copy=%d ring=%d join=%t reads=%t output=%s "+
		"opener=%t faults=%s",
		p.Seed, p.CPUs, p.Processes, p.Threads, p.Time.Milliseconds(), p.Copy, p.Ring, p.Join, p.Reads, p.Output,
		p.Opener, strings.Join(p.Faults, ","))
	if p.Hz > 0 {
		line += fmt.Sprintf(" hz=%d others=%d", p.Hz, p.Others)
	} else if p.isLarge() {
		line += fmt.Sprintf(" rate=%d maps=%d period=%d", p.Rate, p.Maps, p.Period.Microseconds())
	}
	return line
}

// Parse reads a plan.
func Parse(line string) (p Plan, err error) {
	p.Output = Outputs[0]
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		n, nerr := strconv.ParseUint(value, 10, 64)
		switch name {
		case "seed":
			p.Seed = n
		case "cpus":
			p.CPUs = int(n)
		case "processes":
			p.Processes = int(n)
		case "threads":
			p.Threads = int(n)
		case "ms":
			p.Time = time.Duration(n) * time.Millisecond
		case "copy":
			p.Copy = int(n)
		case "ring":
			p.Ring = int(n)
		case "rate":
			p.Rate = int(n)
		case "hz":
			p.Hz = int(n)
		case "others":
			p.Others = int(n)
		case "maps":
			p.Maps = int(n)
		case "period":
			p.Period = time.Duration(n) * time.Microsecond
		case "join":
			p.Join, nerr = strconv.ParseBool(value)
		case "reads":
			p.Reads, nerr = strconv.ParseBool(value)
		case "opener":
			p.Opener, nerr = strconv.ParseBool(value)
		case "output":
			if p.Output, nerr = value, nil; !slices.Contains(Outputs, value) {
				nerr = errors.New("no such output")
			}
		case "faults":
			p.Faults, nerr = strings.FieldsFunc(value, func(c rune) bool { return c == ',' }), nil
		default:
			nerr = errors.New("no such field")
		}
		if nerr != nil {
			return p, fmt.Errorf("%s: %w", field, nerr)
		}
	}
	return p, nil
}

// Shortest returns the smallest plan that it finds which still fails.
func Shortest(p Plan, fails func(Plan) bool) Plan {
	for again := true; again; {
		again = false
		var smaller []Plan
		for i := range p.Faults {
			q := p
			q.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
			smaller = append(smaller, q)
		}
		for _, change := range []func(*Plan){
			func(q *Plan) { q.CPUs = 1 }, func(q *Plan) { q.CPUs-- }, func(q *Plan) { q.Processes = 1 },
			func(q *Plan) { q.Processes-- }, func(q *Plan) { q.Threads = 1 }, func(q *Plan) { q.Time /= 2 },
			func(q *Plan) { q.Time -= q.Time / 8 }, func(q *Plan) { q.Join = false }, func(q *Plan) { q.Reads = false },
			func(q *Plan) { q.Output = Outputs[0] }, func(q *Plan) { q.Opener = false },
		} {
			q := p
			change(&q)
			if q.CPUs > 0 && q.Processes > 0 && q.Time >= time.Millisecond && q.String() != p.String() {
				smaller = append(smaller, q)
			}
		}
		for _, q := range smaller {
			if fails(q) {
				p, again = q, true
				break
			}
		}
	}
	return p
}

// draw returns the numbers that are drawn for something, which do not depend on those that are drawn for others.
func (p *Plan) draw(what string, of ...uint64) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what, of)
	return rand.New(rand.NewPCG(p.Seed, h.Sum64()))
}
