package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// Frames of the profiles that the tests make.
const (
	mainFrame = iota
	parseFrame
	copyFrame
	readFrame
	unknownFrame
	hostileFrame
	otherMemcpy
)

// A stack is a sample's frames, from the outermost to the leaf, with its thread and weight.
type stack struct {
	thread profile.Thread
	frames []int32
	count  uint64
}

var (
	compiler = profile.Thread{PID: 1, TID: 1, Comm: "cc1", Program: "cc1"}
	worker   = profile.Thread{PID: 2, TID: 3, Comm: "pool-1", Program: "server"}
	server   = profile.Thread{PID: 2, TID: 2, Comm: "server", Program: "server"}
)

// made makes a part of a recording.
func made(t testing.TB, first time.Duration, stacks ...stack) *profile.Profile {
	t.Helper()
	s := profiletest.New(&profile.Profile{
		First: uint64(first), Events: []profile.Event{{Name: "cycles", Frequency: 100}},
		Images: []profile.Image{
			{Name: "app", Path: "/app"}, {Name: "libc.so.6", Path: "/libc.so.6"}, {Name: "[kernel]"},
		},
	})
	for _, f := range []profile.Frame{
		{Name: "main", Known: true}, {Name: "parse", Known: true}, {Name: "memcpy", Image: 1, Known: true},
		{Name: "read", Image: 2, Kind: profile.Kernel, Known: true}, {Name: "[app]"},
		{Name: "\x1b[31mred\x07", Known: true}, {Name: "memcpy", Image: 1, Known: true, Addr: 0x10},
	} {
		s.Frame(f)
	}
	for _, st := range stacks {
		s.Add(st.thread, 0, st.count, st.frames...)
	}
	if err := s.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return s.Profile
}

// example has a hundred samples of a second.
func example(t testing.TB) *profile.Profile {
	return made(t, time.Second,
		stack{compiler, []int32{mainFrame, parseFrame}, 30},
		stack{compiler, []int32{mainFrame, parseFrame, parseFrame, copyFrame}, 20},
		stack{compiler, []int32{mainFrame, readFrame}, 10},
		stack{worker, []int32{mainFrame, copyFrame}, 25},
		stack{worker, []int32{mainFrame, otherMemcpy}, 5}, // of the same name
		stack{worker, []int32{unknownFrame, unknownFrame, unknownFrame}, 6},
		stack{server, []int32{hostileFrame}, 4})
}

// table is the rows of a screen as text: "self total name".
func table(s *screen) (rows []string) {
	for _, r := range s.rows {
		if s.tree {
			n := &s.snapshot.nodes[r.index]
			rows = append(rows, fmt.Sprintf("%s%d %d %s", strings.Repeat(" ", r.depth), n.total, n.self, n.name))
		} else {
			f := &s.snapshot.functions[r.index]
			rows = append(rows, fmt.Sprintf("%d %d %s: %s", f.self, f.total, f.name, f.users()))
		}
	}
	return rows
}

func check(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTable(t *testing.T) {
	all := []string{
		"50 50 memcpy: server +1", "30 50 parse: cc1", "10 10 read: cc1", "6 6 [app]: server",
		"4 4 ?[31mred?: server", "0 90 main: cc1 +1",
	}
	for _, c := range []struct {
		name string
		keys string
		want []string
	}{
		{"by self", "", all},
		{"by total", "s", []string{all[5], all[0], all[1], all[2], all[3], all[4]}},
		{"by name", "ss", []string{all[4], all[3], all[5], all[0], all[1], all[2]}},
		{"by self again", "sss", all},
		{"filtered by function", "/PAR\r", all[1:2]},
		{"filtered by image", "/libc\r", all[:1]},
		{"filtered by program", "/server\r", []string{all[0], all[3], all[4], all[5]}},
		{"filter being typed", "/parx\x7f", all[1:2]},
		{"filter given up", "/par\x1b", all},
	} {
		s := newScreen(false)
		s.show(newSnapshot(example(t), time.Second))
		s.pressAll(c.keys)
		check(t, c.name, table(s), c.want)
	}
}

// pressAll presses the keys that a terminal sends as text, one by one but for escape sequences.
func (s *screen) pressAll(text string) (quit bool) {
	for _, k := range keys([]byte(text)) {
		quit = s.press(k) || quit
	}
	return quit
}

func TestTree(t *testing.T) {
	const down, enter, right, left = "\x1b[B", "\r", "\x1b[C", "\x1b[D"
	closed := []string{"60 0 cc1", "40 0 server"}
	for _, c := range []struct {
		name string
		keys string
		want []string
	}{
		{"closed", "t", closed},
		{"opened down to several children", "t" + enter, []string{
			"60 0 cc1", " 60 0 main", "  50 30 parse", "  10 10 read", "40 0 server"}},
		{"an only child is not indented", "t" + enter + down + down + right, []string{
			"60 0 cc1", " 60 0 main", "  50 30 parse", "  20 0 parse", "  20 20 memcpy", "  10 10 read",
			"40 0 server"}},
		{"closed again", "t" + enter + enter, closed},
		{"to the node above", "t" + enter + down + down + left + left, []string{
			"60 0 cc1", " 60 0 main", "40 0 server"}},
		{"a run of unknown functions is one node", "t" + down + enter, []string{
			"60 0 cc1", "40 0 server", " 30 0 main", " 6 6 [app]", " 4 4 ?[31mred?"}},
		{"by self", "t" + down + enter + "ss", []string{
			"60 0 cc1", "40 0 server", " 6 6 [app]", " 4 4 ?[31mred?", " 30 0 main"}},
		{"by name", "t" + down + enter + "s", []string{
			"60 0 cc1", "40 0 server", " 4 4 ?[31mred?", " 6 6 [app]", " 30 0 main"}},
		{"a filter opens what leads to it", "t/memcpy\r", []string{
			"60 0 cc1", " 60 0 main", "  50 30 parse", "  20 0 parse", "  20 20 memcpy",
			"40 0 server", " 30 0 main", " 30 30 memcpy"}},
		{"from the table to the callers", down + down + enter, []string{
			"60 0 cc1", " 60 0 main", "  10 10 read"}},
		{"back in the table", "tt", nil},
	} {
		s := newScreen(false)
		s.show(newSnapshot(example(t), time.Second))
		s.pressAll(c.keys)
		if c.want == nil {
			if s.tree {
				t.Errorf("%s: it is the tree", c.name)
			}
			continue
		}
		check(t, c.name, table(s), c.want)
	}
}

// TestSelection has snapshots change below the cursor.
func TestSelection(t *testing.T) {
	name := func(s *screen) string {
		r, _ := s.current()
		return s.snapshot.functions[r.index].name
	}
	s := newScreen(false)
	s.show(newSnapshot(example(t), time.Second))
	other := newSnapshot(made(t, 0, stack{compiler, []int32{mainFrame, parseFrame}, 60},
		stack{compiler, []int32{mainFrame, copyFrame}, 20}), time.Second)
	s.show(other)
	if name(s) != "parse" {
		t.Errorf("the cursor was at the top, and is on %s", name(s))
	}
	s.show(newSnapshot(example(t), time.Second))
	s.pressAll("j")
	s.show(other)
	if name(s) != "parse" || s.cursor != 0 {
		t.Errorf("the cursor was on parse, and is on %s", name(s))
	}
	s.pressAll("p")
	s.show(newSnapshot(example(t), time.Second))
	if s.snapshot != other {
		t.Error("a paused screen shows a new snapshot")
	}
	s.pressAll("p")
	s.show(newSnapshot(made(t, 0), time.Second))
	if len(s.rows) != 0 || s.cursor != 0 {
		t.Errorf("%d rows, cursor at %d", len(s.rows), s.cursor)
	}
	s.pressAll("\x1b[5~\x1b[6~G\r\x1b[D\x1b[C t\r\x1b[D") // nothing to move in
}

func TestQuit(t *testing.T) {
	for keys, want := range map[string]bool{
		"q": true, "\x03": true, "/q": false, "/q\x03": true, "?q": false, "?qq": true, "x": false,
	} {
		if got := newScreen(false).pressAll(keys); got != want {
			t.Errorf("%q: quits %v, want %v", keys, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	for text, want := range map[string][]key{
		"\x1b[A\x1bOB":     {keyUp, keyDown},
		"\x1b[5~\x1b[6~":   {keyPageUp, keyPageDown},
		"\x1b":             {keyEscape},
		"\x1bx":            {keyEscape, 'x'},
		"\x1b[":            {keyOther},
		"\x1b[1;5C":        {keyOther},
		"\x1b[200~q":       {keyOther, 'q'},
		"ä漢":               {'ä', '漢'},
		"\xff\x00":         {keyOther, keyOther},
		"\r\n\t\x7f\b\x03": {keyEnter, keyEnter, '\t', keyBackspace, keyBackspace, keyInterrupt},
	} {
		if got := keys([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
