package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A library is the one whose functions are on the artificial stacks: the C library.
type library struct {
	path string
	size uint64
	stat unix.Stat_t
	pcs  []site
	root uint64 // where a stack ends
}

// A site is an address that can be a return address, by its CFI.
type site struct {
	offset uint64 // in the file
	frame  uint64 // bytes from SP up to the CFA
}

const (
	largestFrame = 64   // bytes, so that deep stacks are not larger than a copy may be
	mostSites    = 2000 // about as many addresses as most samples of a program have
)

// openLibrary finds the C library and reads its CFI.
func openLibrary() (*library, error) {
	var path string
	for _, pattern := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
		"/usr/lib/libc.so.6"} {
		if found, _ := filepath.Glob(pattern); found != nil {
			path = found[0]
			break
		}
	}
	if path == "" {
		return nil, errors.New("no libc.so.6 where it usually is")
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &library{path: path}
	if err := unix.Fstat(int(f.Fd()), &l.stat); err != nil {
		return nil, err
	}
	l.size = (uint64(l.stat.Size) + 4095) &^ 4095
	layout, err := elf.ReadLayout(f, l.stat.Size)
	if err != nil {
		return nil, err
	}
	sections, err := dwarfcfi.ReadSections(f, layout)
	if err != nil {
		return nil, err
	}
	cfi, err := dwarfcfi.New(sections)
	if err != nil {
		return nil, err
	}
	for d, err := range cfi.FDEs() {
		if err != nil {
			continue
		}
		for row, err := range d.Rows() {
			if err == nil {
				l.note(layout, row)
			}
		}
	}
	if len(l.pcs) < mostSites || l.root == 0 {
		return nil, fmt.Errorf("%s: %d places are too few", path, len(l.pcs))
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(l.pcs), func(i, j int) { l.pcs[i], l.pcs[j] = l.pcs[j], l.pcs[i] })
	l.pcs = l.pcs[:mostSites]
	return l, nil
}

// note adds the row if artificial stacks can use it.
func (l *library) note(layout *elf.Layout, row *dwarfcfi.Row) {
	const rsp = 7
	for _, load := range layout.Loads {
		at := row.Start + 1 // the call is at the row's first byte
		if load.Flags&elf.PF_X == 0 || at < load.Vaddr || at >= load.Vaddr+load.Filesz || at >= row.End {
			continue
		}
		offset := at - load.Vaddr + load.Offset
		switch {
		case row.Signal:
		case row.Regs[row.RA].Kind == dwarfcfi.Undefined:
			l.root = offset
		case row.CFA.Kind == dwarfcfi.CFARegister && row.CFA.Reg == rsp && row.CFA.Offset >= 8 &&
			row.CFA.Offset <= largestFrame &&
			row.Regs[row.RA] == dwarfcfi.RegRule{Kind: dwarfcfi.Offset, Offset: -8}:
			l.pcs = append(l.pcs, site{offset, uint64(row.CFA.Offset)})
		}
	}
}

// made is an artificial recording.
type made struct {
	*recording
	library *library
	rand    *rand.Rand
}

func newMade(l *library) *made {
	m := &made{library: l, rand: rand.New(rand.NewPCG(3, 4))}
	m.recording = &recording{offline: image.Offline{SameKernel: true}}
	return m
}

// mapped adds a record of a mapping of the library.
func (m *made) mapped(pid uint32, addr uint64) error {
	l := m.library
	rec, err := perfring.AppendMmap2(nil, &m.format, &perfring.Mmap2{
		Misc: unix.PERF_RECORD_MISC_USER, PID: pid, TID: pid, Addr: addr, Len: l.size,
		Maj: unix.Major(l.stat.Dev), Min: unix.Minor(l.stat.Dev), Inode: l.stat.Ino,
		Prot: vmas.ProtRead | vmas.ProtExec, Flags: vmas.FlagPrivate, Path: []byte(l.path),
	}, &perfring.SampleID{})
	if err == nil {
		m.addRecord(rec)
	}
	return err
}

// places are n addresses at which the library has room, in pseudo-random order.
func (m *made) places(n int) []uint64 {
	list, at := make([]uint64, n), uint64(libraryAt)
	for i := range list {
		list[i] = at
		at += m.library.size + m.rand.Uint64N(4096)<<12
	}
	return list
}

// topOfStack is the address at which artificial stacks begin.
const topOfStack = 0x7ffd_0000_0000

// A chain has the frames of an artificial stack: return addresses, the outermost last.
type chain struct {
	ips   []uint64
	sizes []uint64 // bytes from SP up to the CFA of each
}

// calls makes a chain of n frames in mappings of the library at these addresses.
func (m *made) calls(n int, at ...uint64) (c chain) {
	for range n {
		s := m.library.pcs[m.rand.IntN(len(m.library.pcs))]
		c.ips = append(c.ips, at[m.rand.IntN(len(at))]+s.offset)
		c.sizes = append(c.sizes, s.frame)
	}
	return c
}

// outermost is the chain of the one frame at the root of all stacks.
func (m *made) outermost(at uint64) chain {
	return chain{[]uint64{at + m.library.root}, []uint64{8}}
}

// sampled adds a sample of a stack that consists of the chains, the innermost first.
func (m *made) sampled(pid, tid uint32, chains ...chain) {
	var all chain
	size := uint64(0)
	for _, c := range chains {
		all.ips, all.sizes = append(all.ips, c.ips...), append(all.sizes, c.sizes...)
	}
	for _, n := range all.sizes {
		size += n
	}
	stack := make([]byte, size)
	sp := uint64(0)
	for i, n := range all.sizes[:len(all.sizes)-1] {
		sp += n
		le.PutUint64(stack[sp-8:], all.ips[i+1])
	}
	s := sample{pid: pid, tid: tid, asked: 65528}
	s.regs.SetPerf(rule.AMD64, perfSP|perfIP, le.AppendUint64(le.AppendUint64(nil, topOfStack-size), all.ips[0]))
	m.addSample(s, stack)
}

// Bits of enum perf_event_x86_regs (arch/x86/include/uapi/asm/perf_regs.h).
const (
	perfSP = 1 << 7
	perfIP = 1 << 8
)
