package compare

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile/difference"
)

// PriceRates are the rates at which a price is measured, in samples a second, from low to high.
var PriceRates = [2]uint64{999, 4999}

// computedRates are those at which a price is computed, by a line through the measured ones: so much for each sample,
// and a constant, to start and to end, which is the price at 0 Hz. What is sampled that rarely costs too little to be
// measured.
var computedRates = []uint64{0, 20, 99}

// A PriceWay is a way to run a command: without a profiler, with one that follows frame pointers, or with one that
// copies and unwinds stacks.
type PriceWay struct {
	Hz     uint64 // samples a second; 0 without a profiler
	Stacks bool
}

// priceWays are the ways of a round, in the order of the first one.
var priceWays = [...]PriceWay{{}, {PriceRates[0], false}, {PriceRates[0], true}, {PriceRates[1], false},
	{PriceRates[1], true}}

// PriceTurns are the ways in the order of a round, by its number from 0 up: one way round and the other by turns, so
// that what gets steadily slower or faster is in all.
func PriceTurns(round int) []PriceWay {
	turns := slices.Clone(priceWays[:])
	if round%2 == 1 {
		slices.Reverse(turns)
	}
	return turns
}

// A PriceRound is the CPU time of one run in each way.
type PriceRound map[PriceWay]time.Duration

// Price is what profiling costs a command: its CPU time in each way, by rounds, of which there are two or more.
type Price struct {
	Rounds      []PriceRound
	Kernel, CPU string     // release and model, "" if not known
	CPUs        int        // online; 0 if not known
	Load        [2]float64 // load average of the last minute, before and after
}

// share is by how much more CPU time the command takes at a rate, as a share of what it takes without a profiler, with
// its interval. Between measured rates and beyond them, a round's time is on a line.
//
// It is that of all rounds together, and its variance is that of a ratio from clusters, as in package difference. The
// mean of the rounds' ratios would be too large: where the time without a profiler is short by chance, a ratio is
// larger by more than it is smaller where that time is long.
func (p *Price) share(stacks bool, hz uint64) (low, value, high float64) {
	from, to := PriceWay{PriceRates[0], stacks}, PriceWay{PriceRates[1], stacks}
	along := (float64(hz) - float64(from.Hz)) / float64(to.Hz-from.Hz)
	with := func(r PriceRound) float64 {
		return r[from].Seconds() + along*(r[to]-r[from]).Seconds()
	}
	bare, sum := max(p.mean(PriceWay{}), shortest.Seconds()), 0.0
	for _, r := range p.Rounds {
		sum += with(r)
	}
	times := sum / float64(len(p.Rounds)) / bare
	var list []float64 // whose mean is the share, and whose spread is that of the rounds
	for _, r := range p.Rounds {
		list = append(list, times-1+(with(r)-times*r[PriceWay{}].Seconds())/bare)
	}
	return difference.Mean(list, 1-difference.Confidence)
}

// shortest is what no command takes less than, by which can be divided.
const shortest = time.Microsecond

// at is the price at a rate.
func (p *Price) at(stacks bool, hz uint64) PriceRow {
	row := PriceRow{Way: "frame_pointers", Hz: hz, Computed: !slices.Contains(PriceRates[:], hz)}
	if stacks {
		row.Way = "stacks"
	}
	row.Low, row.Share, row.High = p.share(stacks, hz)
	if !row.Computed {
		row.CPU = p.mean(PriceWay{hz, stacks})
	}
	return row
}

// mean is the mean CPU time in a way, in seconds.
func (p *Price) mean(way PriceWay) (seconds float64) {
	for _, r := range p.Rounds {
		seconds += r[way].Seconds() / float64(len(p.Rounds))
	}
	return seconds
}

// PriceResult is a Price.
type PriceResult struct {
	Confidence float64    `json:"confidence"` // of each interval
	Rounds     int        `json:"rounds"`
	Without    float64    `json:"without_s"` // CPU time without a profiler
	Rows       []PriceRow `json:"rows"`
	Kernel     string     `json:"kernel"`
	CPU        string     `json:"cpu"`
	CPUs       int        `json:"cpus"`
	LoadBefore float64    `json:"load_before"`
	LoadAfter  float64    `json:"load_after"`
}

// PriceRow is how much more CPU time the command takes in a way, as a share of what it takes without a profiler.
type PriceRow struct {
	Way      string  `json:"way"`
	Hz       uint64  `json:"hz"`
	Computed bool    `json:"computed"` // from those that are not
	CPU      float64 `json:"cpu_s"`    // 0 if computed
	Share    float64 `json:"share"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

func (p *Price) result() *PriceResult {
	r := &PriceResult{
		Confidence: difference.Confidence, Rounds: len(p.Rounds), Without: p.mean(PriceWay{}),
		Kernel: p.Kernel, CPU: p.CPU, CPUs: p.CPUs, LoadBefore: p.Load[0], LoadAfter: p.Load[1],
	}
	for _, hz := range slices.Concat(PriceRates[:], computedRates) {
		r.Rows = append(r.Rows, p.at(false, hz), p.at(true, hz))
	}
	return r
}

// Text is the share, or the most that it can be where the interval has zero.
func (r PriceRow) Text() string {
	if r.Low > 0 {
		return percentRange(&PortionResult{Share: r.Share, Low: r.Low, High: r.High})
	}
	return fmt.Sprintf("not measurable: at most %s %%", rounded(max(r.High, 0), digits(r.High-r.Share), up))
}

// Words are the way and the rate.
func (r PriceRow) Words() string {
	at := human.Number(r.Hz) + " Hz"
	if r.Hz == 0 {
		at = "start and end"
	}
	return strings.ReplaceAll(r.Way, "_", " ") + ", " + at
}

// sentence says the price at the lower one of the measured rates, behind the verdict.
func (r *PriceResult) sentence() string {
	return fmt.Sprintf(" The price of DWARF at %s Hz is %s of the CPU time, and that of frame pointers is %s, only while "+
		"they profile.", human.Number(PriceRates[0]), r.Rows[1].Text(), r.Rows[0].Text())
}

// Machine says where and how the price was measured.
func (r *PriceResult) Machine() string {
	text := fmt.Sprintf("%d rounds by turns", r.Rounds)
	if r.Kernel != "" {
		text += ", Linux " + r.Kernel
	}
	if r.CPU != "" {
		text += ", " + r.CPU
	}
	if r.CPUs > 0 {
		text += ", " + human.Plural(uint64(r.CPUs), "CPU")
	}
	return text + fmt.Sprintf(", load average %.2f before and %.2f after", r.LoadBefore, r.LoadAfter)
}

// InterruptTime is the time of all CPUs in interrupts, where the kernel leaves that out of the time of the program that
// is interrupted (CONFIG_IRQ_TIME_ACCOUNTING); otherwise it is about 0.
func InterruptTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return interruptTime(text)
}

// interruptTime reads it from the first line of /proc/stat, whose unit is 10 ms on all architectures.
func interruptTime(stat []byte) (time.Duration, error) {
	const name, unit, interrupts = "cpu", 10 * time.Millisecond, 6
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) <= interrupts || fields[0] != name {
		return 0, fmt.Errorf("/proc/stat: %q has no time of interrupts", line)
	}
	ticks, err := strconv.ParseUint(fields[interrupts], 10, 39) // of 174 years
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(ticks) * unit, nil
}

// LoadAverage is that of the last minute, 0 if it cannot be read.
func LoadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
