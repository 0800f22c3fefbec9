package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

var le = binary.LittleEndian

// A recording is one that lies in memory, decoded, so that a pass over it does
// nothing but what is measured.
type recording struct {
	format  perfring.Format
	offline unwind.Offline // where the mapped files are
	records []perfring.Record
	samples []sample
	stacks  []byte // the valid parts of all copies, one behind the other
	runs    []run
}

// A sample is one with a user stack.
type sample struct {
	pid, tid uint32
	at, size int // of the stack
	asked    uint64
	regs     unwind.Regs
}

// A run is records that are no samples, and the samples that follow them, as
// many as have room in a block. Either may be none.
type run struct {
	records []perfring.Record
	samples []sample
	at, end int // of the stacks
}

// blockSize is how much of a recording is read at once, and so lies in the
// cache when it is unwound: capture/perfdata's.
const blockSize = 256 << 10

// load reads a recording into memory, in order of time.
func load(path string) (*recording, error) {
	rd, err := perfdata.Open(path)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	r := &recording{}
	ids := make(map[string]vmas.BuildID)
	for _, id := range rd.BuildIDs() {
		if !id.Kernel {
			ids[id.Path] = vmas.NewBuildID(id.ID)
		}
	}
	r.offline = unwind.Offline{SameKernel: true, BuildID: func(path string) vmas.BuildID { return ids[path] }}
	type place struct{ records, samples int }
	var runs []place // where each begins
	err = rd.Ordered(func(rec perfring.Record, f *perfring.Format, _ uint64) error {
		if len(runs) == 0 {
			r.format = *f
			runs = append(runs, place{})
		}
		if rec.Type() != perfring.RecordSample {
			if last := runs[len(runs)-1]; last.samples < len(r.samples) {
				runs = append(runs, place{len(r.records), len(r.samples)})
			}
			r.records = append(r.records, slices.Clone(rec))
			return nil
		}
		var s perfring.Sample
		if err := f.Sample(rec, &s); err != nil {
			return err
		}
		if s.DynSize == 0 || s.RegsABI != unix.PERF_SAMPLE_REGS_ABI_64 {
			return nil
		}
		if last := runs[len(runs)-1]; last.samples < len(r.samples) && len(r.stacks)+len(s.Stack)-r.samples[last.samples].at > blockSize {
			runs = append(runs, place{len(r.records), len(r.samples)})
		}
		it := sample{pid: s.PID, tid: s.TID, at: len(r.stacks), size: len(s.Stack), asked: s.StackSize}
		it.regs.SetPerf(s.RegsMask, s.Regs.Len(), s.Regs.At)
		if s.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
			it.regs.DropUnsaved()
		}
		r.samples = append(r.samples, it)
		r.stacks = append(r.stacks, s.Stack...)
		r.stacks = r.stacks[:(len(r.stacks)+7)&^7]
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(r.samples) == 0 {
		return nil, fmt.Errorf("%s: no samples with a user stack", path)
	}
	runs = append(runs, place{len(r.records), len(r.samples)})
	for i, p := range runs[:len(runs)-1] {
		next := runs[i+1]
		n := run{records: r.records[p.records:next.records], samples: r.samples[p.samples:next.samples]}
		if k := len(n.samples); k > 0 {
			n.at, n.end = n.samples[0].at, n.samples[k-1].at+n.samples[k-1].size
		}
		r.runs = append(r.runs, n)
	}
	return r, nil
}

// processes is the number of processes that have samples.
func (r *recording) processes() int {
	pids := make(map[uint32]bool)
	for i := range r.samples {
		pids[r.samples[i].pid] = true
	}
	return len(pids)
}
