package live

import (
	"errors"
	"io/fs"
	"slices"

	"unspool/capture/rights/priority"
	"unspool/perfring"
	"unspool/vmas/process"
)

const (
	// LeastCopy is how many bytes of a stack are copied at least where rings are small and the rest is read by threads
	// with real-time priority, up to slowRate samples a second. As many stacks are complete as with full copies: 99.6 % by
	// 8 KiB in bench/COPIES.md. 7 KiB are what 64 CPUs can hold for a quarter of a second; of three builds of a package
	// by 'go build', 99.68 to 99.71 % are complete with these, and 99.48 to 99.80 % with full copies.
	LeastCopy = 7 << 10
	slowRate  = 999
	// leastLateCopy is that of readers of ordinary priority, which come too late for some stacks, and of others at higher
	// rates, up to fastRate, where they have not the time to read each: 99.6 % are complete, by the same file. Beyond
	// that, the signals for them would take the time of a CPU.
	leastLateCopy = 32 << 10
	fastRate      = 5000
)

// leastCopy is how small copies may become at a rate, 0 if they may not.
func leastCopy(rate uint64, isKnown, isRealTime bool) int {
	switch {
	case !isRealTime:
		return leastLateCopy
	case !isKnown || rate > fastRate:
		return 0
	case rate > slowRate:
		return leastLateCopy
	}
	return LeastCopy
}

// leastStack is how small copies may become if rings are small, 0 if they may not: only where what they lack is read
// when a stack is sampled.
func (r *recording) leastStack() int {
	if r.StackSize > 0 || r.NoJoin || r.Strict || r.Pairs || !r.mayReadMemory() {
		return 0
	}
	isRealTime := false
	if r.RaisePriority {
		_, isRealTime = priority.Try()
	}
	o := perfring.Options{Events: r.Events, Freq: r.Freq, Period: r.Period}
	rate, isKnown := o.Rate()
	return leastCopy(rate, isKnown, isRealTime)
}

// mayReadMemory reports whether the memory of what is recorded may be read. Of everything, that of the first process is
// representative: who may read it has root's rights, or those of the container's root.
func (r *recording) mayReadMemory() bool {
	pids := r.PIDs
	switch {
	case r.AllCPUs:
		pids = []int{1}
	case len(pids) == 0 && r.command != nil:
		pids = []int{r.command.pid}
	}
	return !slices.ContainsFunc(pids, func(pid int) bool {
		memory, err := process.Direct("/proc").OpenMemory(uint32(pid))
		if err == nil {
			memory.Close()
		}
		return errors.Is(err, fs.ErrPermission) // another error is of a process that has ended
	})
}
