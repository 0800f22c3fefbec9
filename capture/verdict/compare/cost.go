package compare

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/vmas/process"
	"unspool/vmas/sys"
)

// Cost is what a sample costs on this machine.
type Cost struct {
	Samples int
	Bytes   float64       // bytes of a sample in the ring
	Kernel  time.Duration // how much longer the interrupted program waits for each sample
	User    time.Duration // time to read, unwind and write a sample
	// Total is both together: the median of the rounds, and the least and the most of these, between which the median lies
	// with a confidence of 99 %.
	Low, Total, High time.Duration
}

// Costs has the costs of callchains along frame pointers, and of copied stacks.
type Costs struct {
	Chain, Stack Cost
	StackSize    int
	Freq         uint64 // samples a second that were recorded; 0 for another event
}

// rate is how many samples a second the verdict tells the cost of.
func (c *Costs) rate() uint64 { return cmp.Or(c.Freq, 999) }

const (
	measureStub   = "unspool (measuring)"
	measureRate   = 4999     // samples a second
	measureRing   = 32 << 20 // for all samples of a block, at most
	measureBlock  = 50 * time.Millisecond
	measureRounds = 9
)

// As with package capture, any program that imports this package can be the child that is sampled.
func init() {
	if len(os.Args) == 1 && os.Args[0] == measureStub {
		process.Rename("unspool-measure")
		work()
	}
}

// work is the program that Measure samples: it does a block of work for each byte that it reads, and does not
// return.
func work() {
	runtime.LockOSThread()
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for cpu := len(set)*64 - 1; cpu >= 0; cpu-- {
			if set.IsSet(cpu) {
				set.Zero()
				set.Set(cpu)
				_ = unix.SchedSetaffinity(0, &set)
				break
			}
		}
	}
	n := 1 << 16
	block := func() time.Duration {
		began := sys.ThreadTime()
		deep(40, n)
		return sys.ThreadTime() - began
	}
	for { // calibrate: how much work fills a block
		if took := block(); took > measureBlock/2 {
			n = int(float64(n) * float64(measureBlock) / float64(took))
			break
		}
		n *= 2
	}
	var b [8]byte
	for {
		if _, err := io.ReadFull(os.Stdin, b[:1]); err != nil {
			os.Exit(0)
		}
		binary.LittleEndian.PutUint64(b[:], uint64(block()))
		os.Stdout.Write(b[:])
	}
}

// deep does n pieces of work on a stack of depth frames of 2 KiB.
//
//go:noinline
func deep(depth, n int) (sum int) {
	var frame [256]int
	if depth > 0 {
		frame[depth] = deep(depth-1, n)
		return frame[depth] + 1
	}
	for i := range n {
		sum += i ^ sum<<1
	}
	return sum + frame[n&255]
}

// Measure samples a calibrated loop that is pinned to one CPU, without sampling, with callchains and with
// stacks in turn, and compares the shortest times.
func Measure(stackSize int) (c Costs, err error) {
	c.StackSize = stackSize
	runtime.LockOSThread() // the child is killed when this thread ends
	defer runtime.UnlockOSThread()
	child := &exec.Cmd{Path: "/proc/self/exe", Args: []string{measureStub}, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	in, err := child.StdinPipe()
	if err != nil {
		return c, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return c, err
	}
	if err := child.Start(); err != nil {
		return c, fmt.Errorf("the loop to be measured: %w", err)
	}
	defer func() {
		in.Close()
		child.Wait()
	}()
	block := func() (time.Duration, error) {
		var b [8]byte
		if _, err := in.Write(b[:1]); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(out, b[:]); err != nil {
			return 0, fmt.Errorf("the loop to be measured: %w", err)
		}
		return time.Duration(binary.LittleEndian.Uint64(b[:])), nil
	}
	if _, err := block(); err != nil { // after the first block, the child is calibrated
		return c, err
	}
	var bare time.Duration = 1 << 62
	folder, err := os.MkdirTemp("", "unspool-")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(folder)
	modes := [2]measurement{{pid: child.Process.Pid, folder: folder, noStack: true},
		{pid: child.Process.Pid, folder: folder, stackSize: stackSize}}
	for range measureRounds {
		took, err := block()
		if err != nil {
			return c, err
		}
		bare = min(bare, took)
		for i := range modes {
			if err := modes[i].round(took, block); err != nil {
				return c, err
			}
		}
	}
	for i := range modes {
		modes[i].session.Close()
		if err := modes[i].writer.Close(); err != nil {
			return c, err
		}
	}
	c.Chain, c.Stack = modes[0].cost(bare), modes[1].cost(bare)
	return c, nil
}

// measurement is one way of sampling.
type measurement struct {
	pid       int
	folder    string // for the recordings
	noStack   bool
	stackSize int

	session *session.Session
	writer  *perfdata.Writer

	samples int
	bytes   int
	kernel  []kernelTime
	user    time.Duration
	total   []time.Duration // of a sample, by round
}

type kernelTime struct {
	block   time.Duration
	samples int
}

// round samples one block, then reads, unwinds and writes what was sampled. bare is what a block took before, without.
func (m *measurement) round(bare time.Duration, block func() (time.Duration, error)) error {
	events, _, err := perfring.DefaultEvents()
	if err != nil {
		return err
	}
	source, err := perfring.Open(perfring.Target{PIDs: []int{m.pid}}, perfring.Options{
		Events: events, Freq: measureRate, StackSize: m.stackSize, NoStack: m.noStack, UserChain: true,
		Pages: m.ring() / os.Getpagesize(),
	})
	if err != nil {
		return err
	}
	defer source.Close()
	cold := m.session == nil
	if cold {
		if err := m.begin(source); err != nil {
			return err
		}
	}
	if err := source.Enable(); err != nil {
		return err
	}
	took, err := block()
	if err != nil {
		return err
	}
	if err := source.Disable(); err != nil {
		return err
	}
	began, samples, size := sys.ProcessTime(), 0, 0
	err = source.Flush(func(r perfring.Record) error {
		if r.Type() == perfring.RecordSample {
			samples++
			size += len(r)
		}
		return m.session.Record(r)
	})
	if err != nil {
		return err
	}
	if err := m.writer.Round(); err != nil {
		return err
	}
	m.kernel = append(m.kernel, kernelTime{took, samples})
	if !cold && samples > 0 { // the first round reads files, which is no cost of a sample
		user := sys.ProcessTime() - began
		m.total = append(m.total, (max(0, took-bare)+user)/time.Duration(samples))
		m.user += user
		m.samples += samples
		m.bytes += size
	}
	return nil
}

// ring is a size in bytes, a power of two, for four times the samples of a block. Clearing larger rings takes a fifth
// of the CPU time of all that Measure does.
func (m *measurement) ring() int {
	const samples = int(4 * measureRate * measureBlock / time.Second)
	sample := 1 << 10 // with a callchain
	if !m.noStack {
		sample += m.stackSize
	}
	return min(measureRing, 1<<bits.Len(uint(samples*sample)))
}

// begin makes the parts that all rounds share.
func (m *measurement) begin(source *perfring.Source) (err error) {
	m.writer, err = perfdata.Create(
		perfdata.Options{Path: filepath.Join(m.folder, fmt.Sprintf("%v.data", m.noStack)), Events: source.Attrs()})
	if err != nil {
		return err
	}
	m.session = session.New(session.Config{Format: source.Format(), Sink: m.writer, Proc: "/proc",
		MaxStack: 2048})
	return m.session.Seed([]int{m.pid})
}

// cost computes the result; bare is how long a block takes without sampling.
func (m *measurement) cost(bare time.Duration) Cost {
	c := Cost{Samples: m.samples}
	if m.samples == 0 {
		return c
	}
	c.Bytes = float64(m.bytes) / float64(m.samples)
	c.User = m.user / time.Duration(m.samples)
	if n := len(m.total); n > 0 {
		total := slices.Sorted(slices.Values(m.total))
		c.Low, c.Total, c.High = total[0], (total[(n-1)/2]+total[n/2])/2, total[n-1]
	}
	best := slices.MinFunc(m.kernel, func(a, b kernelTime) int { return int(a.block - b.block) })
	if best.samples > 0 {
		c.Kernel = max(0, best.block-bare) / time.Duration(best.samples)
	}
	return c
}
