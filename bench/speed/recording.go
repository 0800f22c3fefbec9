package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

var le = binary.LittleEndian

// A recording is in memory and decoded, so that a pass over it does only the work
// that is measured.
type recording struct {
	format  perfring.SampleFormat
	offline image.Offline // where the mapped files are
	records int           // number of records other than samples
	samples []sample
	stacks  []byte // the valid parts of all copies, one behind the other
	blocks  []block
}

// A sample is a sample with a user stack.
type sample struct {
	pid, tid uint32
	at, size int // of the stack
	asked    uint64
	regs     unwind.Regs
}

// A block is as much of a recording as is read at once.
type block struct {
	at, end int // of the stacks
	runs    []run
}

// A run has records other than samples, and the samples that follow them. Either list
// may be empty.
type run struct {
	records  []perfring.Record
	from, to int // samples
}

// blockSize is how many bytes of a recording are read at once, and so are in the cache
// when they are unwound: the same as in capture/perfdata.
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
	r.offline = image.Offline{SameKernel: true, BuildID: func(path string) vmas.BuildID { return ids[path] }}
	first := true
	err = rd.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if first {
			r.format, first = *f, false
		}
		if rec.Type() != perfring.RecordSample {
			if changesSpaces(rec) {
				r.addRecord(slices.Clone(rec))
			}
			return nil
		}
		var s perfring.Sample
		if err := f.Sample(rec, &s); err != nil {
			return err
		}
		if s.DynSize == 0 || s.RegsABI != unix.PERF_SAMPLE_REGS_ABI_64 {
			return nil
		}
		it := sample{pid: s.PID, tid: s.TID, asked: s.StackSize}
		it.regs.SetPerf(rule.AMD64, s.RegsMask, s.Regs)
		if s.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
			it.regs.DropUnsaved()
		}
		r.addSample(it, s.Stack)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(r.samples) == 0 {
		return nil, fmt.Errorf("%s: no samples with a user stack", path)
	}
	return r, nil
}

// changesSpaces reports whether a record can change an address space. Mappings of data do not; perf's
// recordings have them, unspool's own do not.
func changesSpaces(rec perfring.Record) bool {
	switch rec.Type() {
	case perfring.RecordMmap, perfring.RecordMmap2:
		return rec.Misc()&unix.PERF_RECORD_MISC_MMAP_DATA == 0
	case perfring.RecordFork, perfring.RecordComm, perfring.RecordExit, perfring.RecordLost:
		return true
	}
	return false
}

// addRecord adds a record other than a sample.
func (r *recording) addRecord(rec perfring.Record) {
	if len(r.blocks) == 0 {
		r.blocks = []block{{}}
	}
	b := &r.blocks[len(r.blocks)-1]
	n := len(r.samples)
	if k := len(b.runs); k == 0 || b.runs[k-1].from < n {
		b.runs = append(b.runs, run{from: n, to: n})
	}
	last := &b.runs[len(b.runs)-1]
	last.records = append(last.records, rec)
	r.records++
}

// addSample adds a sample; the place of its stack is set later.
func (r *recording) addSample(s sample, stack []byte) {
	s.at, s.size = len(r.stacks), len(stack)
	n := len(r.samples)
	if k := len(r.blocks); k == 0 || s.at+s.size-r.blocks[k-1].at > blockSize && s.at > r.blocks[k-1].at {
		r.blocks = append(r.blocks, block{at: s.at})
	}
	b := &r.blocks[len(r.blocks)-1]
	if len(b.runs) == 0 {
		b.runs = append(b.runs, run{from: n})
	}
	r.samples = append(r.samples, s)
	r.stacks = append(r.stacks, stack...)
	b.runs[len(b.runs)-1].to, b.end = n+1, len(r.stacks)
	for len(r.stacks)%8 != 0 {
		r.stacks = append(r.stacks, 0)
	}
}

// processes is the number of processes that have samples.
func (r *recording) processes() int {
	pids := make(map[uint32]bool)
	for i := range r.samples {
		pids[r.samples[i].pid] = true
	}
	return len(pids)
}
