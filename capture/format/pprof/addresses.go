package pprof

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	proto "github.com/google/pprof/profile"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// place is where an image is in the address space of the profile: its virtual address v is v+bias there. As
// the kernel does for an executable segment, it maps all pages of the file that the segment touches. From a
// mapping and the segment in the file, pprof computes the bias again (GetBase in its internal/elfexec), and
// so the virtual address.
type place struct {
	bias     uint64
	mappings []mapping      // sorted
	nowhere  *proto.Mapping // for code without an address; nil if there is none
}

// A mapping is one of pprof, for the virtual addresses from start up to limit.
type mapping struct {
	start, limit uint64
	*proto.Mapping
}

const (
	page = 4096
	// stride is the alignment of a bias: it makes an address end in the digits that other tools show.
	stride = 1 << 24
	// userLimit is where the kernel's half of the address space begins, for pprof too. The kernel keeps its
	// addresses.
	userLimit = 1 << 63
)

// at returns the mapping and the address of a virtual address of the image.
func (p *place) at(pc uint64) (*proto.Mapping, uint64) {
	i, exact := slices.BinarySearchFunc(p.mappings, pc, func(m mapping, pc uint64) int {
		return cmp.Compare(m.start, pc)
	})
	if !exact {
		i--
	}
	if pc != 0 && i >= 0 && pc < p.mappings[i].limit {
		return p.mappings[i].Mapping, pc + p.bias
	}
	return p.nowhere, 0
}

// newPlaces puts the images of p that have frames side by side. The program comes first, as pprof takes the
// first mapping for the program; so the program keeps its own addresses. If most samples are not of that
// program, a mapping without addresses comes before it, whose name says of how many programs they are.
func newPlaces(p *profile.Profile, out *proto.Profile) []place {
	pcs := make([][]uint64, len(p.Images))
	kernel := make([]bool, len(p.Images))
	for _, f := range p.Frames {
		pcs[f.Image] = append(pcs[f.Image], f.PC)
		kernel[f.Image] = kernel[f.Image] || f.Kind == profile.Kernel
	}
	places := make([]place, len(p.Images))
	next := uint64(0) // the next free address
	put := func(i int) {
		im, at := &p.Images[i], &places[i]
		slices.Sort(pcs[i])
		if im.Code != nil {
			at.mapSegments(im.Code, pcs[i])
		} else {
			at.mapRange(pcs[i])
		}
		if !kernel[i] {
			next = at.settle(next)
		}
		for _, m := range at.mappings {
			m.Start, m.Limit = m.start+at.bias, m.limit+at.bias
			m.File, m.BuildID = human.Printable(im.Path), hex.EncodeToString(im.BuildID)
			if im.Path == symbols.KernelImage {
				m.File = "[kernel.kallsyms]"
			}
			out.Mapping = append(out.Mapping, m.Mapping)
		}
		for _, pc := range pcs[i] {
			if m, _ := at.at(pc); m == nil {
				// a name that pprof does not try to open
				at.nowhere = &proto.Mapping{File: "[" + strings.Trim(human.Printable(im.Name), "[]") + "]"}
				out.Mapping = append(out.Mapping, at.nowhere)
			}
		}
	}
	first := program(p)
	if first >= 0 {
		if n := 2 * share(p, first); n < p.Count() {
			out.Mapping = append(out.Mapping, &proto.Mapping{File: several(p)})
		}
		put(first)
	}
	for i := range p.Images {
		if i != first {
			put(i)
		}
	}
	for i, m := range out.Mapping {
		m.ID = uint64(i + 1)
	}
	return places
}

// mapSegments maps the segments that have any of the addresses, which are sorted.
func (p *place) mapSegments(code []symbols.CodeSegment, pcs []uint64) {
	mapped := uint64(0) // the end of the part that is mapped
	for _, s := range slices.SortedFunc(slices.Values(code), func(a, b symbols.CodeSegment) int {
		return cmp.Compare(a.Addr, b.Addr)
	}) {
		start, end := s.Addr&^(page-1), s.Addr+s.Size
		if end < s.Addr || end > userLimit || start < mapped || s.Addr%page != s.Offset%page {
			continue // no system would map this
		}
		limit := pageEnd(end)
		if i, _ := slices.BinarySearch(pcs, max(start, 1)); i == len(pcs) || pcs[i] >= limit {
			continue
		}
		p.mappings = append(p.mappings, mapping{start, limit, &proto.Mapping{Offset: s.Offset &^ (page - 1)}})
		mapped = limit
	}
}

// mapRange maps the range of the sorted addresses, which in this case are offsets in the file, or addresses
// of the kernel.
func (p *place) mapRange(pcs []uint64) {
	if i, _ := slices.BinarySearch(pcs, 1); i < len(pcs) {
		start := pcs[i] &^ (page - 1)
		p.mappings = []mapping{{start, pageEnd(pcs[len(pcs)-1] + 1), &proto.Mapping{Offset: start}}}
	}
}

// pageEnd is the end of the page that ends at addr or has it; of the last page, its last address.
func pageEnd(addr uint64) uint64 {
	if end := (addr + page - 1) &^ (page - 1); end >= addr && addr != 0 {
		return end
	}
	return ^uint64(0)
}

// settle chooses the bias so that the mappings begin at next or above, and returns where they end. An image
// that does not fit gets no mappings, as only a damaged one is so large.
func (p *place) settle(next uint64) uint64 {
	if len(p.mappings) == 0 {
		return next
	}
	low, high := p.mappings[0].start, p.mappings[len(p.mappings)-1].limit
	if low < next {
		p.bias = (next - low + stride - 1) / stride * stride
	}
	if high > userLimit || p.bias > userLimit-high {
		p.bias, p.mappings = 0, nil
		return next
	}
	return high + p.bias
}

// library is the name of a shared library's file: "libc.so.6".
var library = regexp.MustCompile(`\.so(\.[0-9.]*)?$`)

// program returns the image that has the most frames on the stacks of the samples, without libraries: in a
// recording of one program, this is the program. It is -1 if there is none.
func program(p *profile.Profile) int {
	weight := make([]uint64, len(p.Nodes))
	for _, s := range p.Samples {
		weight[s.Node] += s.Count
	}
	frames := make([]uint64, len(p.Images))
	best := -1
	for i := len(p.Nodes) - 1; i > 0; i-- {
		n := p.Nodes[i]
		weight[n.Parent] += weight[i]
		f := &p.Frames[n.Frame]
		im := int(f.Image)
		frames[im] += weight[i]
		name := path.Base(p.Images[im].Path)
		if f.Kind == profile.User && symbols.IsFile(p.Images[im].Path) && !library.MatchString(name) &&
			(best < 0 || frames[im] > frames[best]) {
			best = im
		}
	}
	return best
}

// share counts the samples whose stacks have a frame of an image.
func share(p *profile.Profile, image int) (n uint64) {
	has := make([]bool, len(p.Nodes)) // the stack that ends in the node
	for i := 1; i < len(p.Nodes); i++ {
		node := &p.Nodes[i]
		has[i] = has[node.Parent] || int(p.Frames[node.Frame].Image) == image
	}
	for _, s := range p.Samples {
		if has[s.Node] {
			n += s.Count
		}
	}
	return n
}

// several is a name for all programs of a profile, in brackets, so that pprof opens no file.
func several(p *profile.Profile) string {
	of := p.Processes()
	delete(of, 0) // an idle CPU
	names := make(map[string]bool)
	for _, name := range of {
		names[name] = true
	}
	title := fmt.Sprintf("%d programs", len(names))
	if p.Hostname != "" {
		title += " on " + human.Printable(p.Hostname)
	}
	return "[" + title + "]"
}
