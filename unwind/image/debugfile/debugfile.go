package debugfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/vmas/process"
)

// A Link is the contents of .gnu_debuglink. The zero value means: none.
type Link struct {
	Name string // of the debug file, without a directory
	CRC  uint32 // of the whole debug file, IEEE polynomial
}

// MaxLink bounds the size of .gnu_debuglink in bytes: a file name, NUL, padding, and the CRC.
const MaxLink = 256 + 8

// ParseLink reads the contents of .gnu_debuglink: a file name that ends in
// NUL, padding to four bytes, the CRC. It reports false for anything else; a
// name with a directory in it would lead out of the searched ones.
func ParseLink(section []byte) (Link, bool) {
	n := bytes.IndexByte(section, 0)
	if n <= 0 || len(section) > MaxLink {
		return Link{}, false
	}
	name := string(section[:n])
	crc := (n + 1 + 3) &^ 3
	if len(section) < crc+4 || strings.Contains(name, "/") || name == "." || name == ".." {
		return Link{}, false
	}
	return Link{Name: name, CRC: binary.LittleEndian.Uint32(section[crc:])}, true
}

const (
	// Largest is the size in bytes above which a debug file is refused.
	Largest = 4 << 30
	// LargestCRC is the same for a file that only its CRC can show to be the
	// right one: it has to be read as a whole.
	LargestCRC = 1 << 30
)

// ErrOther is wrapped by the error about a debug file of another build.
var ErrOther = errors.New("of another build")

// A Root opens the regular file at a path within a root, as [Open] does.
type Root func(path string) (*process.OpenFile, error)

// In is the root in a directory.
func In(o process.FileOpener, dir string) Root {
	return func(path string) (*process.OpenFile, error) { return o.OpenWithin(dir, path) }
}

// Find opens the debug file of the image at a path, in the first of the roots
// (directories: "/", or the root of a process as /proc shows it) that has it.
// buildID and link are the image's own; either may be missing. The caller
// closes the file.
//
// The error wraps [fs.ErrNotExist] when there is no such file. Any other one
// names the file that was there and says why it cannot be used.
func Find(roots []Root, image string, buildID []byte, link Link) (*process.OpenFile, error) {
	var refused error
	for _, root := range roots {
		for _, c := range candidates(image, buildID, link) {
			f, err := root(c.path)
			if err != nil {
				if refused == nil && !missing(err) {
					refused = fmt.Errorf("%s: %w", c.path, err)
				}
				continue
			}
			err = verify(f, buildID, link, c.byLink)
			if err == nil {
				return f, nil
			}
			f.Close()
			if refused == nil {
				refused = fmt.Errorf("%s: %w", c.path, err)
			}
		}
	}
	if refused != nil {
		return nil, refused
	}
	return nil, fmt.Errorf("debug file of %s: %w", image, fs.ErrNotExist)
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

type candidate struct {
	path   string
	byLink bool
}

// directory is where distributions put debug files.
const directory = "/usr/lib/debug"

// candidates lists where the debug file may be, in the order of GDB.
func candidates(image string, buildID []byte, link Link) []candidate {
	var list []candidate
	if len(buildID) > 1 {
		id := hex.EncodeToString(buildID)
		list = append(list, candidate{path: directory + "/.build-id/" + id[:2] + "/" + id[2:] + ".debug"})
	}
	if link.Name == "" || !path.IsAbs(image) {
		return list
	}
	image = path.Clean(image)
	dir := path.Dir(image)
	for _, d := range [...]string{dir, dir + "/.debug", directory + dir} {
		if p := path.Join(d, link.Name); p != image {
			list = append(list, candidate{p, true})
		}
	}
	return list
}

// Open opens the regular file at a path within root, whose symbolic links
// lead nowhere else: the root may be that of a process in a container. What
// the path leads to is looked at before it is opened, as opening a device can
// have effects.
func Open(root, name string) (*os.File, error) { return process.OpenWithin(root, name) }

// verify makes sure that f belongs to the image. Build IDs must not differ, whichever way led
// to f. Where the image has none, or the file beside it, the link's CRC has to fit.
func verify(f *process.OpenFile, buildID []byte, link Link, byLink bool) error {
	st, err := process.Fstat(f.File)
	if err != nil {
		return err
	}
	if st.Size > Largest {
		return fmt.Errorf("debug file of %d bytes is too large", st.Size)
	}
	id, err := elf.ReadBuildID(f)
	if err != nil {
		return err
	}
	if len(buildID) > 0 && !bytes.Equal(id, buildID) && (len(id) > 0 || !byLink) {
		return fmt.Errorf("build ID %x is not the image's %x: debug file %w", id, buildID, ErrOther)
	}
	if !byLink || len(buildID) > 0 && len(id) > 0 {
		return nil // an equal build ID says as much, and a CRC takes a second for each gigabyte
	}
	if st.Size > LargestCRC {
		return fmt.Errorf("debug file of %d bytes is too large for its CRC to be verified", st.Size)
	}
	crc, err := checksum(f, st.Size)
	if err != nil {
		return err
	}
	if crc != link.CRC {
		return fmt.Errorf("CRC %08x is not the %08x of .gnu_debuglink: debug file %w", crc, link.CRC, ErrOther)
	}
	return nil
}

// checksum is the CRC-32 of the first size bytes of f, which may grow while
// they are read.
func checksum(f io.ReaderAt, size int64) (uint32, error) {
	h := crc32.NewIEEE()
	_, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(f, 0, size), make([]byte, 128<<10))
	return h.Sum32(), err
}
