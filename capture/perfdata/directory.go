package perfdata

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// perf record --threads and --kcore write a directory (perf.data-directory-format.txt): the file "data" has the
// header, the features and the records that perf makes itself, and "data.0", "data.1", … have those of one
// ring each, without a header. The feature DirFormat tells of these: with --kcore alone, there is only "data".

// Versions of the directory, as DirFormat has them.
const (
	dirSingleFile = 0 // PERF_DIR_SINGLE_FILE
	dirVersion    = 1 // PERF_DIR_VERSION
)

const (
	// maxFiles is how many files of a directory are read. There are as many as the recorded machine had CPUs,
	// and each takes a block and a descriptor.
	maxFiles = 1024
	// maxEntries is how many names in a directory are looked at.
	maxEntries = 1 << 16
)

// mainFile is the one of a directory that has the header.
const mainFile = "data"

// MainFile returns the path of the file with the header of the recording at path, which may be a directory.
func MainFile(path string) string {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return filepath.Join(path, mainFile)
	}
	return path
}

// openDirectory opens the recording in a directory, which stays the caller's. A file that cannot be used costs
// its records only, unless it is the one with the header.
func openDirectory(dir *os.File, name string) (*Reader, error) {
	file, err := openIn(dir, mainFile)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("%s: a directory, not a perf.data file", name)
	case err != nil: // without the errno, which callers would explain as one of perf events
		return nil, fmt.Errorf("%s: not read: %s", filepath.Join(name, mainFile), err.Error())
	}
	r, err := OpenStream(file, filepath.Join(name, mainFile))
	if err != nil {
		file.Close()
		return nil, err
	}
	r.file = file
	if r.pipe {
		return r, nil
	}
	if b := r.Feature(DirFormat); len(b) >= 8 { // perf writes the features last: a recording that was cut has none
		switch version := le.Uint64(b); version {
		case dirSingleFile:
			return r, nil
		case dirVersion:
		default:
			r.Close()
			return nil, fmt.Errorf("%s: a directory of version %d, made by a later perf", name, version)
		}
	}
	names, err := dataFiles(dir)
	if err != nil {
		r.damage = append(r.damage, &DamageError{Path: name, Offset: -1, Err: err})
	}
	r.inputs = append(r.inputs, r.input)
	for _, piece := range names {
		s, err := r.openPiece(dir, piece)
		if err != nil {
			r.damage = append(r.damage, &DamageError{Path: filepath.Join(name, piece), Offset: -1, Err: err})
		} else if s != nil {
			s.name = filepath.Join(name, piece)
			r.inputs = append(r.inputs, s)
		}
	}
	return r, nil
}

// openPiece opens a file of records. It is nil if there are none in it.
func (r *Reader) openPiece(dir *os.File, name string) (*input, error) {
	file, err := openIn(dir, name)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err != nil || st.Size() == 0 {
		file.Close()
		return nil, err
	}
	s := &input{file: file, size: st.Size()}
	s.data = newScanner(&r.pool, from(file, 0), 0, s.size)
	return s, nil
}

// dataFiles lists the files data.0, data.1, … of a directory in the order of their numbers, as many as are read.
// The error says what was left out.
func dataFiles(dir *os.File) (names []string, err error) {
	var numbers []int
	entries, err := dir.Readdirnames(maxEntries)
	if err != nil && err != io.EOF {
		return nil, err
	}
	err = nil
	if len(entries) == maxEntries {
		err = fmt.Errorf("%d names or more in the directory: the others are not looked at", maxEntries)
	}
	for _, entry := range entries {
		suffix, ok := strings.CutPrefix(entry, mainFile+".")
		if n, err := strconv.Atoi(suffix); ok && err == nil && n >= 0 && strconv.Itoa(n) == suffix {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if most := maxOpen(); len(numbers) > most {
		err = fmt.Errorf("%d files with records: only the first %d are read", len(numbers), most)
		numbers = numbers[:most]
	}
	for _, n := range numbers {
		names = append(names, fmt.Sprintf("%s.%d", mainFile, n))
	}
	return names, err
}

// maxOpen is how many files of a directory may be open: the files that were mapped need descriptors, too.
func maxOpen() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxFiles
	}
	return int(min(maxFiles, limit.Cur/2))
}

var (
	errLink       = errors.New("a symbolic link, which is not followed")
	errNotRegular = errors.New("not a regular file")
)

// openIn opens a regular file in a directory. What is none is not opened, as that can have effects or block.
func openIn(dir *os.File, name string) (*os.File, error) {
	at := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return nil, errLink
	default:
		return nil, errNotRegular
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		file.Close()
		return nil, errNotRegular // it was replaced meanwhile
	}
	return file, nil
}

// nextInput goes on with another input of a directory: the one that was read has ended, with io.EOF or a
// *DamageError. After the last one it returns the end of the recording.
func (r *Reader) nextInput(end error) error {
	if end != io.EOF {
		r.damage = append(r.damage, end)
	}
	r.until = 0
	r.end()
	if in := r.farthestBehind(); in != nil {
		r.input = in
		return nil
	}
	switch len(r.damage) {
	case 0:
		return io.EOF
	case 1:
		return r.damage[0]
	}
	return errors.Join(r.damage...)
}

// farthestBehind returns the input whose last record is the earliest, nil if all have ended.
func (r *Reader) farthestBehind() (found *input) {
	for _, in := range r.inputs {
		if !in.ended && (found == nil || in.latest < found.latest) {
			found = in
		}
	}
	return found
}

// disorder is by how much a record may be earlier than one before it in the same ring, in ns: an interrupt can write
// one while that of what it has interrupted has its time, but not its place yet.
const disorder = 10e6

// takeTurns chooses the input that is read from: each one goes on until it is ahead of where the last one
// was. What is earlier than all of them is delivered.
func (r *Reader) takeTurns(q *queue, fn func(perfring.Record, *perfring.SampleFormat, uint64) error) error {
	if !r.ended && r.latest <= r.until {
		return nil
	}
	in := r.farthestBehind()
	if in == nil {
		return nil
	}
	r.input = in
	r.until = in.latest + min(disorder, ^uint64(0)-in.latest)
	if in.latest < q.round+2*disorder {
		return nil
	}
	q.round = in.latest - disorder
	return r.finishRound(q, q.round, fn)
}
