package perfdata

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
)

// A DatedFile is one of the files of a recording that was written as several, each with the date behind its name (see
// output.File.KeepDated).
type DatedFile struct {
	Path        string
	Dated       time.Time     // by its name
	First, Last time.Time     // of its samples; zero where it does not say
	Duration    time.Duration // from the first sample to the last
	// Whole reports whether all of it was written: not that of a recording that goes on, or was killed.
	Whole bool
	Err   error // why it cannot be read
}

const (
	mostEntries = 1 << 20 // names of a directory that are looked at
	mostPieces  = 10_000
)

// PieceNames finds the files that a recording at a path was written as, the last mostPieces of them, the oldest first.
func PieceNames(path string) (paths []string) {
	folder, base := filepath.Split(path)
	if base == "" {
		return nil
	}
	dir, err := os.Open(cmp.Or(folder, "."))
	if err != nil {
		return nil
	}
	defer dir.Close()
	for seen := 0; seen < mostEntries; {
		entries, err := dir.ReadDir(4096)
		for _, e := range entries {
			if _, ok := output.ParseDated(base, e.Name()); ok && e.Type().IsRegular() {
				paths = append(paths, folder+e.Name())
			}
		}
		if seen += len(entries); err != nil {
			break
		}
	}
	slices.Sort(paths)
	return paths[max(0, len(paths)-mostPieces):]
}

// ReadPiece reads what one of several files says about itself. The path is that of the recording, file one of
// PieceNames.
func ReadPiece(path, file string) DatedFile {
	p := DatedFile{Path: file}
	p.Dated, _ = output.ParseDated(filepath.Base(path), filepath.Base(file))
	fd, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // it may have become a FIFO
	if err != nil {
		p.Err = err
		return p
	}
	defer fd.Close()
	if st, err := fd.Stat(); err != nil || !st.Mode().IsRegular() {
		p.Err = errors.Join(err, &fs.PathError{Op: "read", Path: file, Err: fs.ErrInvalid})
		return p
	}
	r, err := OpenStream(fd, file)
	if err != nil {
		p.Err = err
		return p
	}
	defer r.Close()
	first, last, known := r.SampleTimes()
	p.Whole = known || r.Text(Version) != ""
	if known {
		p.Duration = time.Duration(min(last-first, 1<<62))
		p.First = r.WallClock(first)
		if !p.First.IsZero() {
			p.Last = p.First.Add(p.Duration)
		}
	}
	return p
}
