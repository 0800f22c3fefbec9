package profile

import (
	"testing"
)

func TestFilter(t *testing.T) {
	worker := Thread{PID: 7, TID: 9, Comm: "kworker/0:1"}
	odd := Thread{PID: 8, TID: 8, Comm: "a[b"}
	for _, c := range []struct {
		filter Filter
		thread Thread
		want   bool
		text   string
	}{
		{Filter{}, worker, true, ""},
		{Filter{Comms: []string{"kworker/0:1"}}, worker, true, "comm kworker/0:1"},
		{Filter{Comms: []string{"kworker"}}, worker, false, "comm kworker"},
		{Filter{Comms: []string{"k*1"}}, worker, true, "comm k*1"},
		{Filter{Comms: []string{"kworker?[0-3]:*"}}, worker, true, "comm kworker?[0-3]:*"},
		{Filter{Comms: []string{"sh", "*"}}, odd, true, "comm sh, *"},
		{Filter{Comms: []string{"a\\[b"}}, odd, true, "comm a\\[b"},
		{Filter{Comms: []string{"a[b"}}, odd, true, "comm a[b"},
		{Filter{Comms: []string{"a[b"}}, worker, false, "comm a[b"},
		{Filter{PIDs: []uint32{1, 7}}, worker, true, "pid 1, 7"},
		{Filter{PIDs: []uint32{9}}, worker, false, "pid 9"},
		{Filter{TIDs: []uint32{9}}, worker, true, "tid 9"},
		{Filter{Comms: []string{"k*"}, PIDs: []uint32{7}, TIDs: []uint32{7}}, worker, false,
			"comm k*; pid 7; tid 7"},
	} {
		if got := c.filter.Passes(c.thread); got != c.want {
			t.Errorf("%+v passes %+v: %t", c.filter, c.thread, got)
		}
		if got := c.filter.String(); got != c.text {
			t.Errorf("%+v: %q", c.filter, got)
		}
	}
	if err := (&Filter{Comms: []string{"sh", "k*[a-c]?"}}).Check(); err != nil {
		t.Error(err)
	}
	if err := (&Filter{Comms: []string{"sh", "a[b"}}).Check(); err == nil {
		t.Error("a pattern whose bracket is not closed is none")
	}
}

// TestFilterLeavesSamplesOut loads a recording whole and in halves.
func TestFilterLeavesSamplesOut(t *testing.T) {
	t.Parallel()
	path := record(t, "-g")
	whole := load(t, path)
	for _, c := range []struct {
		filter Filter
		want   uint64
	}{
		{Filter{Comms: []string{"fp"}}, 0},
		{Filter{PIDs: []uint32{whole.Threads[0].PID}}, 0},
	} {
		for _, s := range whole.Samples {
			if c.filter.Passes(whole.Threads[s.Thread]) {
				c.want += s.Count
			}
		}
		p := loadWith(t, path, Options{Filter: c.filter})
		if p.Count() != c.want || p.Duration != whole.Duration || p.First != whole.First {
			t.Errorf("%s: %d samples in %v, want %d in %v", &c.filter, p.Count(), p.Duration, c.want, whole.Duration)
		}
		if n := p.Events[0].Recorded; n != whole.Count() {
			t.Errorf("%s: %d samples of %d were recorded", &c.filter, n, whole.Count())
		}
	}
}
