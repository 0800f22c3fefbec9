package profile

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/perfring"
)

// TestNoSamples loads recordings without any: that is said, with what may be the reason.
func TestNoSamples(t *testing.T) {
	for _, c := range []struct {
		attr unix.PerfEventAttr
		name string
		says string
	}{
		{unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Sample: 999, Bits: unix.PerfBitFreq}, "cpu-clock",
			"what was recorded waited, or used less CPU time than one sample takes, 1 ms at 999 Hz"},
		{unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS, Sample: 1}, "page-faults",
			"page-faults did not occur in what was recorded, or too seldom"},
	} {
		path := t.TempDir() + "/empty"
		events := []perfring.Attr{{Name: c.name, PerfEventAttr: c.attr}}
		w, err := perfdata.Create(perfdata.Options{Path: path, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		says := "the recording has no samples: " + c.says
		if p := load(t, path); !strings.Contains(strings.Join(p.Problems, "\n"), says) {
			t.Errorf("%q, want %q", p.Problems, says)
		}
		r, err := perfdata.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, err = Load(r, symbols.New(symbols.Options{}), Options{Filter: Filter{Comms: []string{"sh"}}})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("with a filter: %v, want %q", err, says)
		}
	}
}

// TestNothingOfMany has a filter leave out more threads than are named.
func TestNothingOfMany(t *testing.T) {
	l := newLoader(symbols.New(symbols.Options{}))
	l.options.Filter = Filter{Comms: []string{"none"}}
	l.part.samples, l.recorded = 1, []uint64{1}
	for i := range uint32(2 * mostRefused) {
		l.refuse(uint64(i), &Thread{PID: i, TID: i, Comm: fmt.Sprintf("t%05d", i)})
		if r := l.refusedOf[uint64(i)]; r != nil {
			r.samples = uint64(i)
		}
	}
	want := fmt.Sprintf("no samples of comm none: the recording has those of t%05d, ", mostRefused-1)
	if err := l.nothing(); !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), " and 4,088 more") {
		t.Errorf("%v, want %s…", err, want)
	}
}
