package top

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A screen is what the terminal shows: a snapshot, and what the user has chosen of it.
type screen struct {
	colour bool

	snapshot *snapshot
	rows     []row // of the snapshot, those that the table or the tree has now
	matches  matches

	tree   bool
	orders [2]order // of the table and of the tree
	open   map[uint64]bool
	filter string
	typing bool // the filter is being typed
	paused bool
	help   bool

	selected uint64 // the key of the row at the cursor; 0 before the cursor was moved
	cursor   int    // in rows
	first    int    // the row at the top of the list
	page     int    // how many rows the list had last
}

// A row is a function in the table or a node in the tree.
type row struct {
	index int32 // of the function or the node
	depth int   // of the node
	key   uint64
}

func newScreen(colour bool) *screen {
	return &screen{
		colour: colour, snapshot: &snapshot{nodes: []node{{parent: -1}}}, open: make(map[uint64]bool), page: 1,
		orders: [2]order{bySelf, byTotal},
	}
}

// show shows a new snapshot, unless the user has paused that.
func (s *screen) show(n *snapshot) {
	if !s.paused {
		s.snapshot = n
		s.arrange()
	}
}

// order is that of the table or the tree, whichever is shown.
func (s *screen) order() *order {
	if s.tree {
		return &s.orders[1]
	}
	return &s.orders[0]
}

// mostFilter is how many bytes a filter has at most.
const mostFilter = 200

// press does what a key means. It returns true if that is to end.
func (s *screen) press(k key) (quit bool) {
	switch {
	case k == keyInterrupt:
		return true
	case s.typing:
		s.typeFilter(k)
	case s.help:
		s.help = false
	case k == 'q':
		return true
	default:
		s.command(k)
	}
	s.arrange()
	return false
}

// typeFilter changes the filter that is being typed.
func (s *screen) typeFilter(k key) {
	switch {
	case k == keyEnter:
		s.typing = false
	case k == keyEscape:
		s.typing, s.filter = false, ""
	case k == keyBackspace:
		_, n := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-n]
	case k >= ' ' && len(s.filter) < mostFilter:
		s.filter += string(rune(k))
	}
}

func (s *screen) command(k key) {
	switch k {
	case '?', 'h':
		s.help = true
	case 't', '\t':
		s.tree = !s.tree
		s.selected, s.cursor, s.first = 0, 0, 0
	case 's':
		*s.order() = (*s.order() + 1) % orders
	case '/':
		s.typing, s.filter = true, ""
	case keyEscape:
		s.filter = ""
	case 'p', ' ':
		s.paused = !s.paused
	case keyEnter:
		s.enter()
	case keyRight, '+':
		s.unfold(true)
	case keyLeft, '-':
		s.fold()
	default:
		s.move(k)
	}
}

// move moves the cursor.
func (s *screen) move(k key) {
	switch k {
	case keyUp, 'k':
		s.cursor--
	case keyDown, 'j':
		s.cursor++
	case keyPageUp:
		s.cursor -= s.page
	case keyPageDown:
		s.cursor += s.page
	case keyHome, 'g':
		s.cursor = 0
	case keyEnd, 'G':
		s.cursor = len(s.rows) - 1
	default:
		return
	}
	s.put(s.cursor)
}

// put puts the cursor on a row. On the first one it stays there, whatever that is in the next snapshot.
func (s *screen) put(at int) {
	s.cursor = max(0, min(at, len(s.rows)-1))
	s.selected = 0
	if s.cursor > 0 {
		s.selected = s.rows[s.cursor].key
	}
}

// current is the row at the cursor.
func (s *screen) current() (r row, ok bool) {
	if s.cursor >= len(s.rows) {
		return row{}, false
	}
	return s.rows[s.cursor], true
}

// enter opens or closes the node at the cursor. From the table, it leads to the function's callers in the
// tree.
func (s *screen) enter() {
	r, ok := s.current()
	switch {
	case !ok:
	case s.tree:
		s.unfold(!s.isOpen(r.index))
	default:
		s.filter = s.snapshot.functions[r.index].name
		s.tree = true
		s.selected, s.cursor, s.first = 0, 0, 0
	}
}

// unfold opens or closes the node at the cursor. With it are opened the nodes below, down to the first one
// that calls several functions.
func (s *screen) unfold(open bool) {
	r, ok := s.current()
	if !ok || !s.tree {
		return
	}
	if !open {
		delete(s.open, r.key)
		return
	}
	s.put(s.cursor)
	for n := r.index; ; {
		children := s.snapshot.nodes[n].children
		if len(children) == 0 {
			return
		}
		s.open[s.snapshot.nodes[n].key] = true
		if len(children) > 1 {
			return
		}
		n = children[0]
	}
}

// fold closes the node at the cursor, or leads to the one that it is below if it is closed.
func (s *screen) fold() {
	r, ok := s.current()
	if !ok || !s.tree {
		return
	}
	if s.open[r.key] {
		delete(s.open, r.key)
		return
	}
	parent := s.snapshot.nodes[r.index].parent
	if at := slices.IndexFunc(s.rows, func(r row) bool { return r.index == parent }); at >= 0 {
		s.put(at)
	}
}

// isOpen reports whether the children of a node are shown: the user wants it, or what is below passes the
// filter.
func (s *screen) isOpen(n int32) bool {
	return s.open[s.snapshot.nodes[n].key] || s.filter != "" && s.matches.below[n]
}

// arrange finds the rows to show, and the cursor's row among them.
func (s *screen) arrange() {
	s.rows = s.rows[:0]
	if s.tree {
		s.arrangeTree()
	} else {
		s.arrangeTable()
	}
	if s.selected != 0 {
		if at := slices.IndexFunc(s.rows, func(r row) bool { return r.key == s.selected }); at >= 0 {
			s.cursor = at
		}
	}
	s.cursor = max(0, min(s.cursor, len(s.rows)-1))
}

func (s *screen) arrangeTable() {
	wanted := strings.ToLower(s.filter)
	for _, i := range s.snapshot.sorted(*s.order()) {
		f := &s.snapshot.functions[i]
		if contains(f.name, wanted) || contains(f.image, wanted) ||
			slices.ContainsFunc(f.programs, func(name string) bool { return contains(name, wanted) }) {
			s.rows = append(s.rows, row{index: i, key: f.key()})
		}
	}
}

// contains reports whether text has a part, which is in lower case; every text has the empty one.
func contains(text, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(text), part)
}

func (s *screen) arrangeTree() {
	s.matches = s.snapshot.match(s.filter)
	stack := s.pushChildren(nil, row{})
	for len(stack) > 0 {
		r := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		s.rows = append(s.rows, r)
		if s.isOpen(r.index) {
			stack = s.pushChildren(stack, r)
		}
	}
}

// pushChildren pushes the children of a row that pass the filter onto a stack, the first one last. An only
// child of a function is not indented.
func (s *screen) pushChildren(stack []row, r row) []row {
	parent := &s.snapshot.nodes[r.index]
	depth := r.depth
	if r.index != 0 && (len(parent.children) > 1 || parent.parent == 0) {
		depth++
	}
	children := s.snapshot.sortedOf(parent.children, *s.order())
	for _, c := range slices.Backward(children) {
		if s.matches.passes(c) {
			stack = append(stack, row{c, depth, s.snapshot.nodes[c].key})
		}
	}
	return stack
}

// matches is which nodes of a tree pass a filter: those with its text, and all above and below these. Its
// zero value lets all pass.
type matches struct {
	itself, above, below []bool // by node: it has the text, or one above or below it has
}

func (m *matches) passes(n int32) bool {
	return m.itself == nil || m.itself[n] || m.above[n] || m.below[n]
}

// match finds the nodes with a text.
func (s *snapshot) match(text string) (m matches) {
	if text == "" {
		return m
	}
	text = strings.ToLower(text)
	m = matches{make([]bool, len(s.nodes)), make([]bool, len(s.nodes)), make([]bool, len(s.nodes))}
	for i := 1; i < len(s.nodes); i++ {
		n := &s.nodes[i]
		m.itself[i] = contains(n.name, text) || contains(n.image, text)
		m.above[i] = m.itself[n.parent] || m.above[n.parent]
	}
	for i := len(s.nodes) - 1; i > 0; i-- {
		if m.itself[i] || m.below[i] {
			m.below[s.nodes[i].parent] = true
		}
	}
	return m
}
