package folded

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"unspool/capture/profile"
)

// Options say what is written.
type Options struct {
	Event string // name of the event whose samples are counted; "" for the first that has samples
	Plain bool   // frames are not marked as the kernel's, generated or inlined
	// NoComms leaves out what threads are called, with which lines begin.
	NoComms bool
}

// Write writes the stacks of a profile. The error is the first one of w, says why the profile is not valid, or that it
// has no event of the name Options.Event.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckIndices(); err != nil {
		return err
	}
	event, err := choose(p, o.Event)
	if err != nil {
		return err
	}
	words := &vocabulary{}
	now := make([]int32, len(p.Frames))
	for i := range p.Frames {
		now[i] = words.Number(label(&p.Frames[i], o.Plain))
	}
	p = p.Regroup(nil, now) // now the frame of a node is an index of words
	comms := make([]int32, len(p.Threads))
	for i, name := range threadNames(p.Threads) {
		comms[i] = words.Number(firstWord(name))
	}
	words.sort()

	rank := ranks(p.Nodes, words)
	var lines []line
	for _, s := range p.Samples {
		if s.Event != event {
			continue
		}
		l := line{comm: comms[s.Thread], node: s.Node, rank: rank[s.Node], count: s.Count}
		switch {
		case s.Node == 0:
			l.first = words.leaf[l.comm] // a line has to have a word
		case o.NoComms:
			l.first = -1
		default:
			l.first = words.inner[l.comm]
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.rank, b.rank))
	})

	out := bufio.NewWriter(w)
	var path []int32
	for len(lines) > 0 {
		l := lines[0]
		lines = lines[1:]
		for len(lines) > 0 && lines[0].first == l.first && lines[0].rank == l.rank {
			l.count += lines[0].count
			lines = lines[1:]
		}
		path = path[:0]
		for node := l.node; node > 0; node = p.Nodes[node].Parent {
			path = append(path, p.Nodes[node].Frame)
		}
		if !o.NoComms || len(path) == 0 {
			path = append(path, l.comm)
		}
		for i, word := range slices.Backward(path) {
			if i == len(path)-1 {
				out.WriteString(firstWord(words.List[word]))
				continue
			}
			out.WriteByte(';')
			out.WriteString(words.List[word])
		}
		out.WriteByte(' ')
		out.Write(strconv.AppendUint(out.AvailableBuffer(), l.count, 10))
		out.WriteByte('\n')
	}
	return out.Flush()
}

// line is the weight of a stack under a thread's name. Lines are sorted by the name, then by the node.
type line struct {
	first, rank int32
	comm, node  int32
	count       uint64
}

// choose returns the index of the event of a name, or of the first event with samples, -1 when there are
// none.
func choose(p *profile.Profile, name string) (int32, error) {
	if name != "" {
		i := slices.IndexFunc(p.Events, func(e profile.Event) bool { return e.Name == name })
		if i < 0 {
			return 0, fmt.Errorf("no event %q was recorded", name)
		}
		return int32(i), nil
	}
	first := int32(-1)
	for _, s := range p.Samples {
		if first < 0 || s.Event < first {
			first = s.Event
		}
	}
	return first, nil
}
