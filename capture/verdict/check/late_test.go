package check

import (
	"strings"
	"testing"

	"unspool/capture/symbols"
)

// Of a sample that waits for its stack to be seen again, the process may have executed another program when
// it is judged, or mapped another file in the place of a library: its frames are judged by what was there.
func TestSamplesAreJudgedByWhatWasMapped(t *testing.T) {
	t.Parallel()
	one := built(t, "becomes", "-no-pie", "-static")
	other := built(t, "becomes", "-no-pie", "-static", "-DOTHER")
	shared := []string{"-shared", "-fPIC", "-Wno-error"}
	for name, command := range map[string][]string{
		"programs": strings.Fields(strings.Repeat(one+" "+other+" ", 10)),
		"libraries": {built(t, "reloads"), built(t, "library", append(shared, `-DPAD="0x10"`)...),
			built(t, "library", append(shared, `-DPAD="0x777"`)...)},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(symbols.New(symbols.Options{}))
			walk(t, recordingOf(t, command...), c)
			all := c.All()
			t.Logf("%d stacks, %+v", c.Stacks, all)
			if c.Stacks < 100 || all.Wrong() > 0 || all[Unread]*20 > all.Edges() {
				t.Errorf("%d stacks, %+v, wrong %+v", c.Stacks, all, c.Result(name, 0, nil).Wrong)
			}
		})
	}
}
