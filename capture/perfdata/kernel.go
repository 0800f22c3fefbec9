package perfdata

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"unspool/capture/perfdata/kallsyms"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Names that perf gives the kernel in its records.
const (
	kernelName   = "[kernel.kallsyms]"
	anyPID       = 0xffffffff // the kernel is mapped in every process
	ntGNUBuildID = 3          // NT_GNU_BUILD_ID in elf.h
)

// KernelRecords makes the records that perf writes about the kernel and its modules before the first sample:
// MMAP records, without which perf names no kernel address, and build IDs. f is the format of the recording;
// the records' trailers are zero. Along with an error it returns what it found: with [kallsyms.ErrHidden],
// these are the build IDs.
func KernelRecords(f *perfring.SampleFormat) (records [][]byte, ids []FileBuildID, err error) {
	records, ids, err = kernelRecords(f, "/")
	if errors.Is(err, kallsyms.ErrHidden) {
		err = fmt.Errorf("%w: %s", err, kallsyms.Hint())
	}
	return records, ids, err
}

func kernelRecords(f *perfring.SampleFormat, root string) (records [][]byte, ids []FileBuildID, err error) {
	if id := kernelBuildID(filepath.Join(root, "sys/kernel/notes")); id != nil {
		ids = append(ids, FileBuildID{Path: kernelName, ID: id, Kernel: true})
	}
	syms, err := kernelSymbols(filepath.Join(root, "proc/kallsyms"), codeSize(filepath.Join(root, "proc/iomem")))
	if err != nil {
		return records, ids, err
	}
	// _text is the symbol by which perf finds out how far the kernel was moved at boot.
	name := "_text"
	start := syms[name]
	if start == 0 {
		name = "_stext"
		start = syms[name]
	}
	end := max(syms["_edata"], start)
	if end == start {
		end = max(syms["_etext"], start)
	}
	if start == 0 {
		return records, ids, kallsyms.ErrHidden
	}
	if end == start {
		end = 1<<64 - 1
	}
	add := func(m perfring.Mmap) error {
		m.Misc, m.PID = miscKernel, anyPID
		rec, err := perfring.AppendMmap(nil, f, &m, &perfring.SampleID{})
		if err == nil {
			records = append(records, rec)
		}
		return err
	}
	err = add(perfring.Mmap{Addr: start, Len: end - start, Offset: start, Path: []byte(kernelName + name)})
	if err != nil {
		return records, ids, fmt.Errorf("mapping of the kernel: %w", err)
	}

	mods, err := modules(root)
	if err != nil {
		return records, ids, err
	}
	for _, m := range mods {
		if err := add(perfring.Mmap{Addr: m.addr, Len: m.size, Path: []byte(m.path)}); err != nil {
			return records, ids, fmt.Errorf("mapping of the module %s: %w", m.path, err)
		}
		if m.id != nil {
			ids = append(ids, FileBuildID{Path: m.path, ID: m.id, Kernel: true})
		}
	}
	return records, ids, nil
}

// codeSize is how long the kernel's code is, as /proc/iomem says to who has CAP_SYS_ADMIN; 0 if it does not.
func codeSize(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) { // "  01000000-02276f47 : Kernel code"
		place, what, _ := strings.Cut(strings.TrimSpace(line), " : ")
		if what != "Kernel code" {
			continue
		}
		from, to, _ := strings.Cut(place, "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		last, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || start == 0 || last < start {
			return 0
		}
		return last + 1 - start
	}
	return 0
}

// kernelSymbols returns the addresses of the symbols at the kernel's start and end. They are zero for
// users from whom addresses are hidden. If the size of the code is known, not 0, only the first
// symbols are read: all of them take longer than everything else that a recording begins with.
func kernelSymbols(path string, size uint64) (map[string]uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	syms := map[string]uint64{}
	list := kallsyms.NewReader(f)
	for list.Next() {
		if len(list.Module) > 0 {
			continue
		}
		switch string(list.Name) { // does not allocate, and there are a hundred thousand
		case "_text", "_stext", "_etext", "_edata":
			v, err := list.Address()
			if err != nil {
				return nil, fmt.Errorf("%s: address of %s: %w", path, list.Name, err)
			}
			if v == 0 {
				return nil, kallsyms.ErrHidden
			}
			syms[string(list.Name)] = v
		default:
			if size > 0 && len(syms) > 0 {
				syms["_etext"] = max(syms["_text"], syms["_stext"]) + size
				return syms, nil
			}
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	return syms, nil
}

// module is a kernel module that is loaded.
type module struct {
	path       string // of its file, or "[name]"
	addr, size uint64
	id         []byte
}

// modules lists the loaded modules. A kernel without support for modules has no list, which is not an error.
func modules(root string) (mods []module, err error) {
	path := filepath.Join(root, "proc/modules")
	text, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	files := moduleFiles(root)
	for line := range strings.Lines(string(text)) {
		// name size uses users state address [taints]
		field := strings.Fields(line)
		if len(field) < 6 {
			return mods, fmt.Errorf("%s: line %q", path, line)
		}
		size, err1 := strconv.ParseUint(field[1], 10, 64)
		addr, err2 := strconv.ParseUint(strings.TrimPrefix(field[5], "0x"), 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			return mods, fmt.Errorf("%s: %w", path, err)
		}
		if addr == 0 {
			return mods, kallsyms.ErrHidden
		}
		m := module{path: files[field[0]], addr: addr, size: size}
		if m.path == "" {
			m.path = "[" + field[0] + "]"
		}
		m.id = kernelBuildID(filepath.Join(root, "sys/module", field[0], "notes/.note.gnu.build-id"))
		mods = append(mods, m)
	}
	return mods, nil
}

// moduleFiles returns the files of the running kernel's modules, by name of the module.
func moduleFiles(root string) map[string]string {
	var uts unix.Utsname
	if unix.Uname(&uts) != nil {
		return nil
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(uts.Release[:]))
	text, err := os.ReadFile(filepath.Join(root, dir, "modules.dep"))
	if err != nil {
		return nil
	}
	files := map[string]string{}
	for line := range strings.Lines(string(text)) {
		// kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz
		file, _, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		files[strings.ReplaceAll(name, "-", "_")] = filepath.Join(dir, file)
	}
	return files
}

// kernelBuildID finds the build ID in a file of ELF notes, nil when there is none.
func kernelBuildID(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for len(b) >= 12 {
		// struct elf32_note: sizes of name and descriptor, each of which is padded to a word
		name, desc, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		b = b[12:]
		descAt := (name + 3) &^ 3
		end := descAt + (desc+3)&^3
		if end > uint64(len(b)) {
			return nil
		}
		if typ == ntGNUBuildID && string(b[:name]) == "GNU\x00" && desc > 0 && desc <= maxBuildID {
			return b[descAt : descAt+desc]
		}
		b = b[end:]
	}
	return nil
}
