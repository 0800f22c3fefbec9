package symbols

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// lines are those of an endless perf map.
type lines struct {
	next uint64
	rest []byte
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) < len(p) {
		l.next += 16
		l.rest = fmt.Appendf(l.rest, "%x 10 a_function_with_an_ordinary_name_%d\n", l.next, l.next)
	}
	n := copy(p, l.rest)
	l.rest = append(l.rest[:0], l.rest[n:]...)
	return n, nil
}

// TestPerfMapsWithoutEnd reads as much of perf maps as there is room for, in each and in all together.
func TestPerfMapsWithoutEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: two million lines")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var c codes
	err := c.readPerfMap(&lines{})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errTooMuchCode) || len(c.list) > maxCodes || len(c.names) > maxCodeNames {
		t.Errorf("%d pieces of code, %d bytes of names: %v", len(c.list), len(c.names), err)
	}
	held := (after.Sys - min(before.Sys, after.Sys)) >> 20
	t.Logf("%d pieces of code, %d MiB of names, %d MiB taken from the system", len(c.list), len(c.names)>>20,
		held)
	if held > 900 {
		t.Errorf("%d MiB taken from the system", held)
	}
}

func TestPerfMapsOfAllProcesses(t *testing.T) {
	for _, c := range []struct {
		name  string
		room  room
		codes int
	}{
		{"few pieces of code", room{codes: 25, names: 1 << 20}, 25},
		{"few bytes of names", room{codes: 1000, names: 100}, 100 / len("name")},
	} {
		one := strings.Repeat("1000 10 name\n", 20)
		got := 0
		var failed error
		for range 3 {
			process := codes{room: &c.room}
			if err := process.readPerfMap(strings.NewReader(one)); err != nil {
				failed = err
			}
			got += len(process.list)
		}
		if got != c.codes || !errors.Is(failed, errTooMuchCode) {
			t.Errorf("%s: %d, want %d; %v", c.name, got, c.codes, failed)
		}
	}
}
