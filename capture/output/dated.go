package output

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A recording that is written as several files, one after the other, has them named after the date and time, as
// perf record --switch-output does (fetch_current_timestamp in builtin-record.c): perf.data.2026113014031055 is of
// 14:03:10.55 by the local clock.

const (
	dateLayout = "20060102150405"
	dateStep   = 10 * time.Millisecond // of the last two digits
	// mostTaken is how many names in a row may be taken.
	mostTaken = 1000
)

// dateSuffix is what a name has behind that of the place.
func dateSuffix(t time.Time) string {
	return fmt.Sprintf(".%s%02d", t.Format(dateLayout), t.Nanosecond()/int(dateStep))
}

// LongestSuffix is one as long as those of dated files.
const LongestSuffix = "." + dateLayout + "00"

// ParseDated returns the time in the name of a file that is dated and belongs to the name of a place. ok is false for
// other names.
func ParseDated(name, file string) (t time.Time, ok bool) {
	suffix, ok := strings.CutPrefix(file, name)
	if !ok || len(suffix) != len(LongestSuffix) {
		return t, false
	}
	// The fraction of a second needs a point to be read.
	seconds, hundredths := suffix[1:1+len(dateLayout)], suffix[1+len(dateLayout):]
	t, err := time.ParseInLocation(dateLayout, seconds+"."+hundredths, time.Local)
	return t, err == nil && suffix[0] == '.'
}

// KeepDated gives the file a name of its own while it is being written, or when it is whole: that of the place and the
// date and time. No file is replaced: if that name is taken, it is the next one. Of the files that have got such names
// from the place, the last most stay, and older ones are removed. The result is the path.
func (f *File) KeepDated(most int) (path string, err error) {
	if f.temporary == "" {
		return f.place.path, nil
	}
	suffix, err := f.place.keepDated(f.temporary, most)
	if suffix != "" {
		f.temporary = ""
	}
	return f.place.path + suffix, err
}

// keepDated returns the suffix also if only an older file could not be removed.
func (p *Place) keepDated(temporary string, most int) (suffix string, err error) {
	if p.keeper != nil {
		suffix, err = p.keeper.KeepDated(temporary, most)
		return suffix, p.told("rename", err)
	}
	if err := p.user.checkDirectory(p.dir, p.path); err != nil {
		return "", err
	}
	now := time.Now()
	for range mostTaken {
		suffix = dateSuffix(now)
		if err = p.renameNew(temporary, p.name+suffix); err != unix.EEXIST {
			break
		}
		now = now.Add(dateStep)
	}
	if err != nil {
		return "", p.failed("rename", err)
	}
	p.dated = append(p.dated, p.name+suffix)
	return suffix, p.forget(max(most, 1))
}

// renameNew renames a file if the new name is not taken.
func (p *Place) renameNew(from, to string) error {
	err := unix.Renameat2(p.dir, from, p.dir, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	// The file system cannot do that, as NFS.
	_, there, err := p.stat(to)
	switch {
	case err != nil:
		return err
	case there:
		return unix.EEXIST
	}
	return unix.Renameat(p.dir, from, p.dir, to)
}

// forget removes the dated files but the last ones. Those that somebody else has removed are not missed.
func (p *Place) forget(most int) error {
	for len(p.dated) > most {
		if err := unix.Unlinkat(p.dir, p.dated[0], 0); err != nil && err != unix.ENOENT {
			return p.failed("remove", err)
		}
		p.dated = p.dated[1:]
	}
	return nil
}
