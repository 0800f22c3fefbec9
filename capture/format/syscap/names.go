package syscap

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// place is an address of a process.
type place struct {
	addr uint64
	pid  uint32
}

// names finds the frame at an address that was sampled: an index in Profile.Frames or, if negative, the complement of
// an index in Profile.Events.
type names struct {
	at     map[place]int32
	madeUp map[owner]uint64 // addresses of frames that can't have their own
	recent [1 << 14]recent  // by a hash of the place: samples come back to the same ones

	most     int    // places in at for frames' own addresses, and in madeUp
	moved    uint64 // frames with an address made up, as there was no room for theirs
	nameless uint64 // frames without name, as there was no room for one
}

// recent is a frame that has its own address.
type recent struct {
	place
	frame1 int32 // index plus one
}

type owner struct {
	pid   uint32
	frame int32
}

// mostPlaces is how many addresses have names of their own.
const mostPlaces = 1 << 20

// The addresses that are made up are not canonical on any x86 or ARM.
const (
	noName      = firstMadeUp - madeUpStep
	firstMadeUp = 1 << 60
	madeUpStep  = 16
)

func newNames() names {
	return names{at: make(map[place]int32), madeUp: make(map[owner]uint64), most: mostPlaces}
}

// place returns the address to write for a frame at an address of a process: the same, or a made-up one if
// that address or a neighbouring one belongs to another function. (Neighbours matter because the end of a
// range of addresses belongs to the range for Sysprof up to 44, and not for later ones.)
func (n *names) place(p *profile.Profile, pid uint32, addr uint64, frame int32) uint64 {
	at := place{addr, pid}
	slot := &n.recent[(addr^addr>>14^uint64(pid)*0x9e3779b1)%uint64(len(n.recent))]
	if *slot == (recent{at, frame + 1}) {
		return addr
	}
	if known, ok := n.at[at]; ok {
		if same(p, known, frame) {
			*slot = recent{at, frame + 1}
			return addr
		}
		return n.made(pid, frame)
	}
	for _, next := range [...]uint64{addr - 1, addr + 1} {
		if known, ok := n.at[place{next, pid}]; ok && !same(p, known, frame) {
			return n.made(pid, frame)
		}
	}
	if len(n.at)-len(n.madeUp) >= n.most {
		n.moved++
		return n.made(pid, frame)
	}
	n.at[at] = frame
	return addr
}

// same reports whether two frames are shown in the same way.
func same(p *profile.Profile, a, b int32) bool {
	return a == b || a >= 0 && b >= 0 && p.Frames[a].Image == p.Frames[b].Image &&
		p.Frames[a].Name == p.Frames[b].Name
}

// made returns the made-up address of a frame. It has no name if there are too many.
func (n *names) made(pid uint32, frame int32) uint64 {
	k := owner{pid, frame}
	addr, ok := n.madeUp[k]
	if !ok && len(n.madeUp) >= n.most {
		n.nameless++
		return noName
	}
	if !ok {
		addr = firstMadeUp + madeUpStep*uint64(len(n.madeUp))
		n.madeUp[k] = addr
		n.at[place{addr, pid}] = frame
	}
	return addr
}

// symbol is an element of "__symbols__": the name of a range of addresses of a process. In the file, the
// offset of the name follows, and that of a tag, which is the image's name.
type symbol struct {
	place        // the first address
	last  uint64 // address that was sampled
	frame int32
}

const symbolSize = 32

// sorted returns the symbols by process and address. A function that was sampled at several addresses is one
// symbol, if no other lies between them.
func (n *names) sorted(p *profile.Profile) []symbol {
	all := make([]symbol, 0, len(n.at))
	for at, frame := range n.at {
		all = append(all, symbol{at, at.addr, frame})
	}
	slices.SortFunc(all, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.addr, b.addr))
	})
	merged := all[:0]
	for _, s := range all {
		if i := len(merged) - 1; i >= 0 && merged[i].pid == s.pid && same(p, merged[i].frame, s.frame) {
			merged[i].last = s.addr
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// symbols writes the file "__symbols__": the symbols, one of zeros, and the texts that they name by their
// offsets in the file.
func (w *Writer) symbols() error {
	p := w.profile
	symbols := w.names.sorted(p)
	begin := symbolSize * uint64(len(symbols)+1)
	var texts []byte
	offsets := make(map[string]uint64)
	offset := func(s string) uint64 {
		at, ok := offsets[s]
		if !ok {
			at = begin + uint64(len(texts))
			offsets[s] = at
			texts = append(append(texts, human.Printable(s)...), 0)
		}
		return at
	}
	file := embedded{w: w, path: "__symbols__"}
	for _, s := range symbols {
		var name, tag uint64
		if s.frame < 0 {
			name = offset(p.Events[^s.frame].Name)
		} else if f := &p.Frames[s.frame]; f.Known {
			name, tag = offset(f.Name), offset(p.Images[f.Image].Name)
		} else {
			name = offset(f.Name)
		}
		if max(name, tag) > math.MaxUint32 {
			return fmt.Errorf("a Sysprof capture can't hold the names of %d addresses", len(w.names.at))
		}
		b := le.AppendUint64(make([]byte, 0, symbolSize), s.addr)
		b = le.AppendUint64(b, s.last+1)
		b = le.AppendUint32(b, s.pid)
		b = le.AppendUint32(b, uint32(name))
		b = le.AppendUint32(b, uint32(tag))
		file.write(le.AppendUint32(b, 0))
	}
	file.write(make([]byte, symbolSize))
	file.write(texts)
	file.close()
	return w.err
}
