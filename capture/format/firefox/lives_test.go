package firefox

import (
	"testing"

	"unspool/capture/perfdata/replay"
	"unspool/perfring"
)

// TestLivesOfThreads has forks and exits. The life of an ID that is used again is from the first beginning
// to the last end.
func TestLivesOfThreads(t *testing.T) {
	const fork, exit = replay.Fork, replay.Exit
	type event struct {
		kind replay.Kind
		time uint64
	}
	for _, c := range []struct {
		name   string
		events []event
		want   life
	}{
		{"nothing", nil, life{}},
		{"begins", []event{{fork, 10}}, life{began: 10}},
		{"ends", []event{{exit, 20}}, life{ended: 20}},
		{"begins and ends", []event{{fork, 10}, {exit, 20}}, life{10, 20}},
		{"begins again", []event{{fork, 10}, {exit, 20}, {fork, 30}}, life{began: 10}},
		{"ends again", []event{{fork, 10}, {exit, 20}, {fork, 30}, {exit, 40}}, life{10, 40}},
		{"was there before, and begins again", []event{{exit, 20}, {fork, 30}}, life{}},
		{"was there before, and ends again", []event{{exit, 20}, {fork, 30}, {exit, 40}}, life{ended: 40}},
		{"made up for what ran already", []event{{fork, 0}, {exit, 20}}, life{ended: 20}},
		{"another record", []event{{replay.Comm, 10}}, life{}},
	} {
		l := NewLives()
		var format perfring.SampleFormat
		for _, e := range c.events {
			l.Record(&replay.Change{Kind: e.kind, PID: 7, TID: 8, PPID: 7, PTID: 7}, &format, e.time)
		}
		if got := l.lookup(7, 8); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if got := l.lookup(7, 7); got != (life{}) {
			t.Errorf("%s: the other thread: %+v", c.name, got)
		}
	}
}
