package machine

import (
	"fmt"
	"path/filepath"
	"slices"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/perfring"
	"unspool/vmas"
)

// files reads the files of a recording. Each has to hold by itself what its samples need: every address of a stack is
// in a mapping that the file has told of by then.
func (r *run) files(folder string) {
	paths, err := filepath.Glob(filepath.Join(folder, "perf.data*"))
	r.check("list the files", err)
	if len(paths) == 0 {
		r.res.problem("there is no file")
	}
	samples := uint64(0)
	for _, path := range paths {
		f := &written{r: r, table: vmas.NewTable("")}
		f.replay = replay.NewRecorded(f.table)
		reader, err := perfdata.Open(path)
		if err != nil {
			r.check("open a file", err)
			continue
		}
		r.check(filepath.Base(path), reader.Ordered(f.record))
		reader.Close()
		samples += f.samples
		r.mu.Lock()
		r.res.Reached[r.plan.Output+" file"]++
		r.mu.Unlock()
	}
	complete := r.plan.Output == "file" || r.plan.Output == "segments" && !r.plan.isLong()
	if all := r.judge.count.samples; complete && samples != all {
		r.res.problem("the files have %d samples of %d", samples, all)
	}
	if r.plan.Output == "flight" {
		r.lastOf(samples)
	}
}

// lastOf holds how many samples the file of a flight recorder has against those of the time that it has to keep.
func (r *run) lastOf(samples uint64) {
	times := r.judge.times
	from, _ := slices.BinarySearch(times, r.ended-uint64(r.plan.Time/3))
	if least := uint64(len(times) - from); samples < least {
		r.res.problem("the file has %d samples, and at the end there were %d", samples, least)
	}
}

// A written is a file that is read.
type written struct {
	r       *run
	table   *vmas.Table
	replay  *replay.Replay
	sample  perfring.Sample
	samples uint64
}

func (f *written) record(rec perfring.Record, format *perfring.SampleFormat, _ uint64) error {
	if rec.Type() != perfring.RecordSample {
		_, err := f.replay.Record(rec, format)
		return err
	}
	if err := format.Sample(rec, &f.sample); err != nil {
		return err
	}
	f.samples++
	var user []uint64
	for i, in := 0, false; i < f.sample.Callchain.Len(); i++ {
		ip := f.sample.Callchain.At(i)
		if in {
			user = append(user, ip)
		}
		in = in || ip == perfring.ContextUser
	}
	if right := f.r.judge.right[f.sample.Time]; !slices.Equal(user, right) {
		return fmt.Errorf("a sample at %d has the stack %#x in place of %#x", f.sample.Time-base, user, right)
	}
	space := f.table.Space(f.sample.PID)
	if comm := f.r.judge.comms[f.sample.Time]; comm != "" && (space == nil || space.Comm(f.sample.TID) != comm) {
		return fmt.Errorf("a sample at %d of thread %d, %s, has another name, or none", f.sample.Time-base, f.sample.TID,
			comm)
	}
	for i, ip := range user {
		if i > 0 {
			ip--
		}
		if f.r.plan.isCalm() && (space == nil || space.Find(ip) == nil) {
			return fmt.Errorf("a sample at %d of process %d has the address %#x, of which no mapping tells", f.sample.Time-base,
				f.sample.PID, ip)
		}
	}
	return nil
}
