package buildidcache

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
	"unspool/capture/rights/sandbox"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/debugfile"
	"unspool/vmas"
	"unspool/vmas/process"
)

// Most is how many bytes are written for one recording at most.
const Most = 512 << 20

const (
	mostOfFile = 64 << 20 // bytes
	mostFiles  = 1024
	// mostLookedAt bounds of how many files it is remembered that they were looked at.
	mostLookedAt = 1 << 16
)

// A cache is the process's view of the build-ID cache.
type cache struct {
	path    string         // of the cache; "" where the user has no home
	raised  bool           // files were opened with more rights than this process's user has
	confine func()         // gives up all rights but to write to the cache
	folder  *output.Folder // nil before anything is written
	err     error          // why there is none

	lookedAt map[identity]bool
	report   Summary
}

// An identity tells the contents of files apart.
type identity struct {
	dev, ino uint64
	size     int64
	modified unix.Timespec
}

// newCache is the cache of this process's user.
func newCache(raised bool) *cache {
	c := &cache{path: debugfile.Cache(), raised: raised, lookedAt: make(map[identity]bool)}
	c.confine = func() { // what this kernel lacks, it lacks for the recording, too, which says so
		sandbox.ConfineReader(sandbox.Reading{Folders: []string{c.path}, Links: true})
	}
	return c
}

// add puts a file into the cache if it is not where it was mapped.
func (c *cache) add(s *sampled) {
	id := identity{s.at.Dev, s.at.Ino, s.at.Size, s.at.Mtim}
	if c.lookedAt[id] || s.isHere() {
		return
	}
	if len(c.lookedAt) >= mostLookedAt {
		clear(c.lookedAt)
	}
	c.lookedAt[id] = true
	if c.raised && !s.mayRead() {
		c.report.leave(s.name, "that you may not read")
		return
	}
	err := c.keep(s)
	switch {
	case err == errNotCode, err == errHere:
	case err == nil:
		c.report.Files++
	case errors.As(err, new(omitted)):
		c.report.leave(s.name, err.Error())
	default:
		c.report.Failed = true
		var path *fs.PathError
		if errors.As(err, &path) { // which differs for each
			err = path.Err
		}
		c.report.leave(s.name, fmt.Sprintf("that could not be written (%v)", err))
	}
}

// omitted is a reason why a file is left out.
type omitted string

func (o omitted) Error() string { return string(o) }

// errNotCode is about a file that has no names.
var errNotCode = errors.New("not an ELF file")

// errHere is about a file whose build is at its path in our root.
var errHere = errors.New("it is here")

// keep puts a file into the cache, unless that has it.
func (c *cache) keep(s *sampled) error {
	if err := c.open(); err != nil {
		return err
	}
	var magic [4]byte
	if n, _ := s.ReadAt(magic[:], 0); n < len(magic) || string(magic[:]) != "\x7fELF" {
		return errNotCode
	}
	found, err := elf.ReadBuildID(s)
	switch {
	case err != nil || len(found) == 0 || len(s.id) == 0:
		return omitted("without a build ID")
	case !bytes.Equal(found, s.id):
		return omitted("written to since it was recorded")
	}
	if s.hasTwinHere(found) {
		return errHere
	}
	id := vmas.NewBuildID(found).Bytes() // as much of it as a recording has
	for _, name := range debugfile.Cached(c.path, id, "elf") {
		if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
			return nil
		}
	}
	switch {
	case s.at.Size > mostOfFile:
		return omitted(fmt.Sprintf("larger than %d MiB", mostOfFile>>20))
	case c.report.Files >= mostFiles:
		return omitted(fmt.Sprintf("more than %d", mostFiles))
	case c.report.Bytes+s.at.Size > Most:
		return omitted(fmt.Sprintf("beyond %d MiB in all", Most>>20))
	}
	return c.write(s, found, id)
}

// hasTwinHere reports whether the recorded path leads to another file of the same build in our root.
func (s *sampled) hasTwinHere(id []byte) bool {
	for _, path := range vmas.Paths(s.name) {
		file, err := process.OpenRegular(path)
		if err != nil {
			continue
		}
		found, err := elf.ReadBuildID(file)
		file.Close()
		if err == nil && bytes.Equal(found, id) {
			return true
		}
	}
	return false
}

// open makes the folder of the cache, and has this process give up everything else.
func (c *cache) open() error {
	if c.folder != nil || c.err != nil {
		return c.err
	}
	if c.path == "" {
		c.err = errors.New("HOME is not set")
		return c.err
	}
	if c.folder, c.err = output.MakeFolder(c.path); c.err != nil {
		return c.err
	}
	c.report.Folder = c.path
	c.confine()
	return nil
}

// write writes a file into the cache, and the link to it.
func (c *cache) write(s *sampled, found, id []byte) error {
	digits := hex.EncodeToString(id)
	names := append(within(s.name), digits)
	folder, err := c.below(names)
	if err != nil {
		return err
	}
	defer folder.Close()
	place, err := folder.Place("elf")
	if err != nil {
		return err
	}
	defer place.Close()
	file, err := place.Create()
	if err != nil {
		return err
	}
	if err := s.copyTo(file, found); err != nil {
		file.Discard()
		return err
	}
	if err := file.Keep(); err != nil {
		return err
	}
	c.report.Bytes += s.at.Size
	links, err := c.below([]string{".build-id", digits[:2]})
	if err != nil {
		return err
	}
	defer links.Close()
	return links.Link(digits[2:], "../../"+filepath.Join(names...))
}

// copyTo copies the file, and makes sure that it is the build that was recorded.
func (s *sampled) copyTo(to *output.File, found []byte) error {
	n, err := io.Copy(to, io.NewSectionReader(s, 0, s.at.Size))
	if err != nil {
		return err
	}
	var now unix.Stat_t
	if err := unix.Fstat(int(s.Fd()), &now); err != nil {
		return err
	}
	copied, err := elf.ReadBuildID(to)
	if n != s.at.Size || now.Size != s.at.Size || now.Mtim != s.at.Mtim || err != nil || !bytes.Equal(copied, found) {
		return omitted("written to since it was recorded")
	}
	return nil
}

// below opens a folder below that of the cache.
func (c *cache) below(names []string) (*output.Folder, error) {
	at := c.folder
	for _, name := range names {
		next, err := at.Folder(name)
		if at != c.folder {
			at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// unnamed is the folder of files whose own path cannot be one in the cache.
const unnamed = "[unnamed]"

// within is the path of a file in the cache, by names: that by which it was mapped.
func within(name string) []string {
	const mostNames, longest = 64, 255
	names := strings.FieldsFunc(strings.TrimSuffix(name, gone), func(r rune) bool { return r == '/' })
	if len(names) == 0 || len(names) > mostNames || names[0] == ".build-id" {
		return []string{unnamed}
	}
	for _, n := range names {
		if n == "." || n == ".." || len(n) > longest || strings.Contains(n, "\x00") {
			return []string{unnamed}
		}
	}
	return names
}
