package perfring

import (
	"slices"
	"testing"
)

func TestEventNamesCompleteWhatIsTyped(t *testing.T) {
	sys := fakeSystem(t, map[string]string{
		"tracing/events/sched/sched_switch/id": "1",
		"tracing/events/sched/sched_wakeup/id": "2",
		"tracing/events/sched/enable":          "0",
	})
	for _, c := range []struct {
		prefix string
		want   []string
	}{
		{"cpu-c", []string{"cpu-clock", "cpu-cycles"}},
		{"sched:sched_s", []string{"sched:sched_switch"}},
		{"sched:", []string{"sched:sched_switch", "sched:sched_wakeup"}},
		{"../sched:", nil},
		{"me", []string{"mem:"}},
		{"mem:", nil},
		{"mem:0x401136:", []string{"mem:0x401136:rw", "mem:0x401136:w", "mem:0x401136:x"}},
		{"mem:0x401136/4:w", []string{"mem:0x401136/4:w"}},
		{"no-such-event", nil},
	} {
		if got := sys.eventNames(c.prefix); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.prefix, got, c.want)
		}
	}
}
