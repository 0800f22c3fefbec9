package debuginfod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"unspool/unwind/image/debugfile"
)

// The cache is a folder with a folder for each build. Its name is the build ID in hexadecimal digits, and it
// holds the files "executable" and "debuginfo", and others that elfutils fetches. An empty file means that no
// server had it when the file was made. Three files beside the builds hold a number of seconds each; the
// modification time of the one for cleaning is the time of the last cleaning.
const (
	cleanInterval = "cache_clean_interval_s"
	maxUnused     = "max_unused_age_s"
	missLifetime  = "cache_miss_s"
)

const day = 24 * time.Hour

// lifetimes are the values that elfutils' client writes if one of the files does not exist.
var lifetimes = map[string]time.Duration{cleanInterval: day, maxUnused: 7 * day,
	missLifetime: 10 * time.Minute}

type cache struct{ folder string }

func (c cache) build(r request) string { return filepath.Join(c.folder, r.id) }
func (c cache) path(r request) string  { return filepath.Join(c.folder, r.id, string(r.kind)) }

func (c cache) prepare() error { return c.failed(os.MkdirAll(c.folder, 0o700)) }

// CacheError is why the cache cannot be written.
type CacheError struct {
	Folder string
	Err    error
}

func (e *CacheError) Error() string { return fmt.Sprintf("debuginfod's cache %s: %v", e.Folder, e.Err) }
func (e *CacheError) Unwrap() error { return e.Err }

// failed makes a CacheError of an error about one file, so that it has the same text for all files.
func (c cache) failed(err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &CacheError{c.folder, err}
}

// setting reads one of the files with a number of seconds, and when it was written.
func (c cache) setting(name string) (time.Duration, time.Time) {
	unset := lifetimes[name]
	file, err := os.OpenFile(filepath.Join(c.folder, name), os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return unset, time.Now()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return unset, time.Now()
	}
	text, _ := io.ReadAll(io.LimitReader(file, 32))
	if len(text) == 0 {
		_, _ = file.WriteString(strconv.Itoa(int(unset / time.Second)))
		return unset, info.ModTime()
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return unset, info.ModTime()
	}
	return seconds(n), info.ModTime()
}

// open opens a file that is in the cache. The error is ErrNotFound if no server had it not long ago, and
// another fs.ErrNotExist if servers have to be asked.
func (c cache) open(r request) (*os.File, error) {
	path := c.path(r)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() && info.Size() == 0 {
		lifetime, _ := c.setting(missLifetime)
		if time.Since(info.ModTime()) <= lifetime {
			return nil, ErrNotFound
		}
		_ = os.Remove(path)
		return nil, fs.ErrNotExist
	}
	file, err := debugfile.Open("/", path)
	if errors.Is(err, fs.ErrPermission) {
		// Before elfutils 0.186, a file without permissions meant what an empty file means now.
		_ = os.Remove(path)
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	// Cleaning uses the access time, which most file systems update once a day at most.
	_ = os.Chtimes(path, time.Now(), time.Time{})
	return file, nil
}

// create makes a file, which commit or discard must be called for; until then its name has six more letters.
// Another process that cleans up may remove the folder right after it was made.
func (c cache) create(r request) (*os.File, error) {
	for try := 0; ; try++ {
		if err := os.Mkdir(c.build(r), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, c.failed(err)
		}
		// It is created as it will be: a confined process cannot change the mode of a file.
		name := fmt.Sprintf("%s.%06x", r.kind, rand.Uint32()>>8)
		file, err := os.OpenFile(filepath.Join(c.build(r), name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o400)
		if err == nil || try > 0 || !errors.Is(err, fs.ErrNotExist) {
			return file, c.failed(err)
		}
	}
}

// commit gives a file its name, and the server's modification time if that is not zero.
func (c cache) commit(r request, file *os.File, modified time.Time) error {
	err := file.Close()
	if err == nil {
		err = os.Rename(file.Name(), c.path(r))
	}
	if err != nil {
		c.discard(r, file)
		return c.failed(err)
	}
	// Not before the renaming, as old files without a final name are cleaned up. A confined process cannot.
	_ = os.Chtimes(c.path(r), time.Now(), modified)
	return nil
}

func (c cache) discard(r request, file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name())
	_ = os.Remove(c.build(r)) // fails if there are other files in it
}

// miss remembers that no server has a file.
func (c cache) miss(r request) {
	if err := os.Mkdir(c.build(r), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	// This fails if another process has fetched the file meanwhile.
	file, err := os.OpenFile(c.path(r), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err == nil {
		_ = file.Close()
	}
}

// clean removes files that have not been used for a long time, unless it did so lately.
func (c cache) clean(ctx context.Context) {
	interval, last := c.setting(cleanInterval)
	now := time.Now()
	if now.Sub(last) < interval {
		return
	}
	renew(filepath.Join(c.folder, cleanInterval)) // first, so that others need not
	age, _ := c.setting(maxUnused)
	builds, _ := os.ReadDir(c.folder)
	for _, b := range builds {
		if ctx.Err() != nil {
			return
		}
		if b.IsDir() && isHex(b.Name()) {
			cleanBuild(filepath.Join(c.folder, b.Name()), now, age)
		}
	}
}

// renew makes now the time at which a small file was modified, by writing what it holds.
func renew(path string) {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if text, err := io.ReadAll(io.LimitReader(file, 32)); err == nil {
		_, _ = file.WriteAt(text, 0)
	}
}

// cleanBuild removes those files of a build that were not read for longer than age, and the folder if it was
// empty for that long.
func cleanBuild(folder string, now time.Time, age time.Duration) {
	before, err := os.Stat(folder)
	if err != nil {
		return
	}
	files, _ := os.ReadDir(folder)
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if unused(f.Name(), info, now) >= age {
			_ = os.Remove(filepath.Join(folder, f.Name()))
		}
	}
	if now.Sub(before.ModTime()) >= age {
		_ = os.Remove(folder)
	}
}

// unused is how long ago a file was last used; negative for a file that does not belong to the cache. For a
// file that is being fetched, or was not completed, the time counts from a day after its last byte.
func unused(name string, info fs.FileInfo, now time.Time) time.Duration {
	switch kind, partial, _ := strings.Cut(name, "."); {
	case kind == string(Executable) || kind == string(Debuginfo):
		if partial != "" {
			return now.Sub(info.ModTime()) - day
		}
	case strings.HasPrefix(name, "source") || strings.HasPrefix(name, "section"):
	default:
		return -1
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return now.Sub(time.Unix(st.Atim.Unix()))
}

// isHex reports whether a name can be a build ID.
func isHex(name string) bool {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return name != ""
}
