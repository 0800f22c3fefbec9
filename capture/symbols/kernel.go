package symbols

import (
	"bufio"
	"bytes"
	"cmp"
	std "debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata/kallsyms"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/fileid"
)

// KernelImage is the image of kernel functions outside modules.
const KernelImage = "[kernel]"

// KernelID is which kernel was recorded, so that the names of another kernel are never used. Unknown fields
// are zero.
type KernelID struct {
	BuildID []byte
	Release string // as uname -r
	// Ref names a symbol of the kernel ("_text", "_stext") and RefAddr its address in the recording: after a
	// reboot, the same kernel has other addresses (address space layout randomization).
	Ref     string
	RefAddr uint64
}

// kernel holds the functions of the kernel and its modules.
type kernel struct {
	id     KernelID
	read   bool
	table  Table
	images []imageRange // which image functions belong to, sorted by address
	loaded []imageRange // from /proc/modules, sorted by address
	shift  uint64       // recorded address minus present address, modulo 2^64
}

// imageRange means that the addresses from start up to end belong to an image: KernelImage, or a module
// as "[name]".
type imageRange struct {
	start, end uint64
	image      string
}

// SetKernel tells which kernel the recording's addresses belong to. Without it they are taken for addresses of
// the running kernel.
func (s *Symbolizer) SetKernel(id KernelID) { s.kernel = kernel{id: id} }

// Kernel returns the function at an address in kernel memory, and the image that it is in: KernelImage, or a
// module as "[name]". For some addresses only the image is known.
func (s *Symbolizer) Kernel(addr uint64) (f Func, image string, ok bool) {
	k := &s.kernel
	if !k.read {
		k.read = true
		s.Contain("kernel", "names", s.readKernel)
	}
	addr -= k.shift
	image = KernelImage
	if i, found := k.table.index(addr); found {
		f = k.table.At(i)
		if m := findImage(k.images, f.Addr); m != nil {
			image = m.image
		}
		f.Addr, f.Entry = f.Addr+k.shift, f.Entry+k.shift
		return f, image, true
	}
	if m := findImage(k.loaded, addr); m != nil {
		image = m.image
	}
	return Func{}, image, false
}

// findImage returns the range that contains addr, nil when none does.
func findImage(ranges []imageRange, addr uint64) *imageRange {
	lo, hi := 0, len(ranges)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); ranges[mid].start <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || addr >= ranges[lo-1].end {
		return nil
	}
	return &ranges[lo-1]
}

// otherKernel returns a text why the running kernel is not the recorded one, or "" if it is or may be.
func (s *Symbolizer) otherKernel() string {
	id := s.kernel.id
	if len(id.BuildID) > 0 {
		// ELF notes as in files; the file is missing if sysfs is not mounted.
		if notes, err := os.ReadFile("/sys/kernel/notes"); err == nil {
			if own := elf.NoteBuildID(notes, 4, binary.NativeEndian); own != nil {
				if fileid.SameBuild(own, id.BuildID) {
					return ""
				}
				return fmt.Sprintf("the running kernel has build ID %x, the recorded one %x", own, id.BuildID)
			}
		}
	}
	var u unix.Utsname
	if id.Release != "" && unix.Uname(&u) == nil {
		if own := unix.ByteSliceToString(u.Release[:]); own != id.Release {
			return fmt.Sprintf("the running kernel is %s, the recorded one %s", own, id.Release)
		}
	}
	return ""
}

func (s *Symbolizer) readKernel() {
	k := &s.kernel
	// A kallsyms file that the caller names is used without a check.
	path, other := s.options.Kallsyms, ""
	if path == "/proc/kallsyms" {
		other = s.otherKernel()
	}
	var list io.Reader
	if other == "" {
		file, err := s.options.Kernel(path)
		if err != nil {
			s.problem("kernel: no names: %v", err)
			return
		}
		defer file.Close()
		list = file
	} else {
		file, err := s.cached(k.id.BuildID, "kallsyms")
		if err != nil {
			s.problem("kernel: no names: %s", other)
			return
		}
		defer file.Close()
		path, list = file.Name(), io.NewSectionReader(file, 0, math.MaxInt64)
	}
	refAddr, err := k.readKallsyms(list)
	switch {
	case errors.Is(err, kallsyms.ErrHidden):
		hint := "it was copied by who may not see them"
		if path == "/proc/kallsyms" {
			hint = kallsyms.Hint()
		}
		s.problem("kernel: no names: %v in %s: %s", err, path, hint)
		return
	case err != nil:
		s.problem("kernel: %s: %v", path, err)
	}
	if k.id.RefAddr != 0 && refAddr != 0 {
		k.shift = k.id.RefAddr - refAddr
	}
	if other != "" {
		return // the modules in /proc belong to the running kernel
	}
	if modules, err := s.options.Kernel(s.options.Modules); err == nil { // absent in a kernel without modules
		defer modules.Close()
		k.readModules(modules)
	}
}

// readKallsyms reads lines "address type name [module]" and returns the address of the symbol k.id.Ref.
// Functions have the types t, T, w and W (nm). There are no sizes: each function reaches up to the next
// one. The last one of the kernel or of a module reaches to the end of its page or of the next, as there is
// no code in the gap up to the next module.
func (k *kernel) readKallsyms(r io.Reader) (ref uint64, err error) {
	// A distribution's kernel has 100,000 to 200,000 functions.
	b := builder{syms: make([]symbol, 0, 1<<17), strings: make([]byte, 0, 1<<22)}
	images := []string{KernelImage}
	owners := map[string]uint16{"": 0} // as kallsyms names them → index in images
	hidden := true
	list := kallsyms.NewReader(r)
	for len(b.syms) < maxSymbols && len(b.strings) < maxStrings && list.Next() {
		addr, err := list.Address()
		if err != nil {
			continue
		}
		hidden = hidden && addr == 0
		name, module := list.Name, list.Module
		if k.id.Ref != "" && len(module) == 0 && string(name) == k.id.Ref {
			ref = addr
		}
		bind := std.STB_LOCAL
		switch list.Type {
		case 'T':
			bind = std.STB_GLOBAL
		case 'w', 'W':
			bind = std.STB_WEAK
		case 't':
		default:
			continue
		}
		if addr == 0 || len(name) == 0 {
			continue
		}
		owner, ok := owners[string(module)]
		if !ok && len(images) < 1<<16 {
			owner = uint16(len(images))
			images = append(images, strings.TrimSpace(string(module)))
			owners[string(module)] = owner
		}
		r := rank(std.STT_FUNC, bind, 0)
		if bytes.HasPrefix(name, []byte("__ia32_")) {
			// The system call of 32-bit processes, which is often the same function as that of
			// 64-bit processes (arch/x86/include/asm/syscall_wrapper.h).
			r |= 1 << 7
		}
		function, _ := partOf(name)
		b.syms = append(b.syms, symbol{addr: addr, name: uint32(len(b.strings)), rank: r, owner: owner,
			part: function != nil})
		b.strings = append(append(b.strings, name...), 0)
	}
	if hidden {
		if err := list.Err(); err != nil {
			return 0, err
		}
		return 0, kallsyms.ErrHidden
	}
	k.images = imageRanges(b.syms, images)
	b.finish(&k.table, func(addr uint64) uint64 {
		if m := findImage(k.images, addr); m != nil {
			return m.end
		}
		return addr
	})
	return ref, list.Err()
}

// imageRanges returns the runs of addresses that belong to one image. It sorts syms.
func imageRanges(syms []symbol, images []string) []imageRange {
	const page = 4096
	slices.SortFunc(syms, func(x, y symbol) int { return cmp.Compare(x.addr, y.addr) })
	var ranges []imageRange
	for i, s := range syms {
		end := (s.addr + 2*page - 1) &^ (page - 1)
		if i+1 < len(syms) {
			end = min(end, syms[i+1].addr)
		}
		if n := len(ranges); n > 0 && ranges[n-1].image == images[s.owner] {
			ranges[n-1].end = end
		} else {
			ranges = append(ranges, imageRange{s.addr, end, images[s.owner]})
		}
	}
	return ranges
}

// readModules reads lines "name size users dependents state 0xaddress [taints]".
func (k *kernel) readModules(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(k.loaded) < 1<<16 {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		size, err1 := strconv.ParseUint(fields[1], 10, 64)
		addr, err2 := strconv.ParseUint(fields[5], 0, 64)
		if err1 != nil || err2 != nil || addr == 0 || addr+size < addr {
			continue
		}
		k.loaded = append(k.loaded, imageRange{addr, addr + size, "[" + fields[0] + "]"})
	}
	slices.SortFunc(k.loaded, func(x, y imageRange) int { return cmp.Compare(x.start, y.start) })
}
