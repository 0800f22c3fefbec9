package firefox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"unspool/capture/profile"
)

// thread has what must be known about a thread before its samples are written.
type thread struct {
	samples uint64 // of the main event
	rows    int    // of the table of samples: samples and beginnings of gaps
	markers int    // samples of other events
	tid     string
	leads   bool   // the process's main thread
	process string // name
}

// describeThreads goes through all samples once.
func (w *writer) describeThreads() error {
	w.threads = make([]thread, len(w.p.Threads))
	var total uint64
	for i := range w.threads {
		t := &w.threads[i]
		err := w.each(int32(i), func(e entry) {
			t.rows++
			if !e.gap {
				t.samples++
			}
			w.end = max(w.end, e.time)
		}, func(e entry) {
			t.markers++
			w.end = max(w.end, e.time)
		})
		if err != nil {
			return err
		}
		total += t.samples + uint64(t.markers)
	}
	if count := w.p.Count(); total != count {
		return fmt.Errorf("the timeline has %d samples, the profile %d", total, count)
	}
	w.nameThreads()
	return nil
}

// nameThreads gives the threads their TIDs and processes.
func (w *writer) nameThreads() {
	order := w.busiest()
	epochs := make(map[[2]uint32]int) // by PID and TID: threads seen
	processes := w.p.Processes()
	for _, i := range order {
		of := w.p.Threads[i]
		key := [2]uint32{of.PID, of.TID}
		t := &w.threads[i]
		t.tid = strconv.FormatUint(uint64(of.TID), 10)
		if n := epochs[key]; n > 0 {
			t.tid += "." + strconv.Itoa(n)
		}
		t.leads = of.PID == of.TID && epochs[key] == 0
		epochs[key]++
		t.process = cmp.Or(w.p.CommandLines[of.PID], processes[of.PID])
	}
}

// busiest returns the threads with the most samples first.
func (w *writer) busiest() []int32 {
	order := make([]int32, len(w.threads))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		x, y := &w.threads[a], &w.threads[b]
		return cmp.Or(cmp.Compare(y.samples, x.samples), cmp.Compare(y.markers, x.markers))
	})
	return order
}

const (
	maxVisible   = 15
	visibleShare = 20 // a visible thread has at least one sample for so many of the busiest thread
)

// visible returns the threads that are shown at first: the busiest ones, by the rule of the reader, and the
// gaps.
func (w *writer) visible() []int32 {
	order := w.busiest()
	n := 0
	for n < len(order) && n < maxVisible &&
		(n == 0 || w.threads[order[n]].samples*visibleShare >= w.threads[order[0]].samples) {
		n++
	}
	order = order[:n]
	if w.gaps {
		order = append(order, int32(len(w.threads)))
	}
	return order
}

// entry is a sample, or the beginning of a gap between samples.
type entry struct {
	time   uint64 // ns since the origin
	stack  int32  // index in the stack table, -1 for none
	event  int32
	cpu    int32
	period uint64
	gap    bool
}

// gapAfter is how many intervals without a sample are a gap. A thread that shares its CPU is sampled at every
// other tick.
const gapAfter = 3

// each calls sample with the rows of a thread's table of samples, and marker with the samples of other
// events. Times never go back.
func (w *writer) each(i int32, sample, marker func(entry)) error {
	var now uint64 // since the origin
	var last uint64
	first := true
	return w.timeline.Each(i, func(pt profile.Point) error {
		if pt.Node < 0 || int(pt.Node) >= len(w.p.Nodes) || pt.Event < 0 || int(pt.Event) >= len(w.p.Events) {
			return fmt.Errorf("thread %d: a sample with node %d of %d, event %d of %d", i, pt.Node, len(w.p.Nodes),
				pt.Event, len(w.p.Events))
		}
		now = max(now, w.since(pt.Time))
		e := entry{time: now, stack: pt.Node - 1, event: pt.Event, cpu: pt.CPU, period: pt.Period}
		if e.event != w.main {
			marker(e)
			return nil
		}
		if !first && w.interval > 0 && (now-last)/gapAfter > w.interval {
			sample(entry{time: last + w.interval, stack: -1, gap: true})
		}
		first, last = false, now
		sample(e)
		return nil
	})
}

func ignore(entry) {}

// writeThread writes a thread. It reads the samples once for each column.
func (w *writer) writeThread(i int32) error {
	t, of := &w.threads[i], &w.p.Threads[i]
	w.Open('{')
	w.describe(t.tid, strconv.FormatUint(uint64(of.PID), 10), of.Comm, t.process, t.leads)
	w.writeLife(of)

	var err error
	column := func(name string, n int, markers bool, value func(e entry)) {
		if err != nil {
			return
		}
		w.Key(name)
		w.Open('[')
		rows := 0
		count := func(e entry) { rows++; value(e) }
		if markers {
			err = w.each(i, ignore, count)
		} else {
			err = w.each(i, count, ignore)
		}
		if err == nil && rows != n {
			err = fmt.Errorf("thread %d: %d samples where %d were", i, rows, n)
		}
		w.Close()
	}

	w.table("samples", t.rows)
	w.Field("weightType", "samples")
	column("stack", t.rows, false, func(e entry) { w.index(e.stack) })
	var last uint64
	column("timeDeltas", t.rows, false, func(e entry) {
		w.milliseconds(e.time - last)
		last = e.time
	})
	if uint64(t.rows) == t.samples {
		w.Key("weight")
		w.null() // 1 each
	} else {
		column("weight", t.rows, false, func(e entry) {
			if e.gap {
				w.Int(0)
				return
			}
			w.Int(1)
		})
	}
	if t.samples > 0 && w.p.Events[w.main].Clock {
		column("threadCPUDelta", t.rows, false, func(e entry) { w.Int(int64(min(e.period, 1<<53))) })
	}
	w.Close()

	w.table("markers", t.markers)
	column("name", t.markers, true, func(e entry) { w.index(w.events[e.event]) })
	column("startTime", t.markers, true, func(e entry) { w.milliseconds(e.time) })
	w.same("endTime", t.markers, "null")
	w.same("phase", t.markers, instant)
	w.same("category", t.markers, strconv.Itoa(other))
	column("data", t.markers, true, w.writeEvent)
	w.Close()
	w.Close()
	return err
}

// describe writes what identifies a thread.
func (w *writer) describe(tid, pid, name, process string, leads bool) {
	for _, field := range [][2]string{{"name", name}, {"processName", process}, {"processType", "default"},
		{"pid", pid}, {"tid", tid}} {
		w.Field(field[0], field[1])
	}
	w.Field("isMainThread", leads)
	w.same("pausedRanges", 0, "")
	w.Field("showMarkersInTimeline", true)
}
