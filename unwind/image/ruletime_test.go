package image

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"unspool/vmas/sys"
)

// TestRuleTime: what one process costs is bounded, and what all of them do; others are not hurt before that.
// The clock stands still meanwhile, as credits grow with time, also with that for which the test has no CPU.
func TestRuleTime(t *testing.T) { synctest.Test(t, testRuleTime) }

func testRuleTime(t *testing.T) {
	spend := func(th *ruleTime, pid uint32, each time.Duration) (n int) {
		for th.use(pid); n < 1000; n++ {
			if _, ok := th.begin(); !ok {
				break
			}
			if th.limited {
				th.charge(each, each)
			}
		}
		return n
	}
	th := newRuleTime(true)
	if n := spend(&th, 7, 2*time.Millisecond); n < 25 || n > 30 {
		t.Errorf("a process had %d rules of 2 ms", n)
	}
	if n := spend(&th, 8, 2*time.Millisecond); n < 25 || n > 30 {
		t.Errorf("another one had %d", n)
	}
	all := 0
	for pid := uint32(9); pid < 60; pid++ {
		all += spend(&th, pid, 2*time.Millisecond)
	}
	if all < 20 || all > 60 {
		t.Errorf("fifty others had %d", all)
	}
	time.Sleep(time.Second)
	if n := spend(&th, 7, 2*time.Millisecond); n < 25 || n > 30 {
		t.Errorf("a second later it had %d", n)
	}
	time.Sleep(time.Second)
	if n := spend(&th, 8, 100*time.Millisecond); n != 1 {
		t.Errorf("%d rules of 100 ms", n)
	}
	time.Sleep(200 * time.Millisecond)
	if n := spend(&th, 8, time.Millisecond); n != 0 {
		t.Errorf("200 ms later there are %d more", n)
	}
	if th = newRuleTime(false); spend(&th, 7, time.Second) < 1000 {
		t.Error("a conversion is bounded")
	}
}

// TestRulesAreChargedCPUTime: waiting for a CPU and sleeping cost nothing, also if the goroutine has changed threads.
func TestRulesAreChargedCPUTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	th := newRuleTime(true)
	th.use(7)
	cpu := sys.ThreadTime()
	began, ok := th.begin()
	if !ok {
		t.Fatal("there is no credit")
	}
	before := th.process.credit.Has()
	time.Sleep(30 * time.Millisecond)
	th.end(began)
	// The Go runtime may work on this thread meanwhile.
	if charged, had := before-th.process.credit.Has(), sys.ThreadTime()-cpu; charged < 0 || charged > had {
		t.Errorf("a sleep of 30 ms is charged %v, of %v of CPU time", charged, had)
	}
	was := cpuTimes{tid: 1, thread: 5 * time.Second, all: 7 * time.Second}
	for _, c := range []struct {
		is   cpuTimes
		want time.Duration
	}{
		{cpuTimes{1, 5*time.Second + 3, 9 * time.Second}, 3},
		{cpuTimes{2, 1 * time.Second, 7*time.Second + 4}, 4}, // another thread, which has had less
		{cpuTimes{2, 60 * time.Second, 7*time.Second + 4}, 4},
	} {
		if got := c.is.since(&was); got != c.want {
			t.Errorf("%+v after %+v: %v", c.is, was, got)
		}
	}
	for _, cpu := range []time.Duration{-time.Hour, time.Hour} {
		before := th.process.credit.Has()
		if th.charge(cpu, time.Millisecond); before-th.process.credit.Has() != time.Millisecond {
			t.Errorf("%v of CPU time in a millisecond are charged %v", cpu, before-th.process.credit.Has())
		}
	}
}
