package explore

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	proto "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"unspool/unwind/image/debugfile"
)

// pprof opens whatever the debugging information names, and reads it to its end: a device, a FIFO where nobody
// writes, a file without an end, one on a server that does not answer. The profiled program chooses these names.
// Therefore pprof gets copies in a private directory, of regular files within limits. It has no hook for that, so
// the pages with source are made from a profile of their own, in which the files have the names of their copies:
//
//	/usr/include/x.h    MASK/usr/include/x.h
//	src/x.c             MASK./src/x.c
//
// These are relative, so pprof looks for them below its source path, which is the private directory, and
// then below the parents of that. MASK is random and secret: only the private directory has files of that
// name. MASK is removed from the page afterwards.

// Limits on what is copied.
const (
	maxSize    = 16 << 20 // bytes of a file
	maxLines   = 1 << 20  // of a file: pprof allocates a string for each
	maxCopied  = 256 << 20
	maxSources = 20000
	slow       = 5 * time.Second // for reading a file, which may lie on a network or in another process
	maxSlow    = 3               // number of files that took longer after which no more are read
)

// sources copies source files for pprof.
type sources struct {
	mask    string
	dir     string // "" if it could not be made
	cwd     string // relative names are looked for here, and in the parents
	problem func(string)
	named   []string // files that the profile names and that were not offered yet

	mu     sync.Mutex // protects the following fields
	files  map[string]*source
	copied int  // bytes
	slow   int  // files
	full   bool // there were more files than maxSources
	closed bool
}

// source is a file that an image names.
type source struct {
	refusal string // why it is not shown; "" if it is shown, or does not exist
	told    bool
}

// newSources makes the private directory. The files that the profile names are copied when they are needed.
func newSources(p *proto.Profile, problem func(string)) *sources {
	s := &sources{mask: rand.Text(), problem: problem, files: make(map[string]*source)}
	for _, f := range p.Function {
		if f.Filename != "" {
			s.named = append(s.named, f.Filename)
		}
	}
	slices.Sort(s.named)
	s.named = slices.Compact(s.named)
	var err error
	if s.dir, err = os.MkdirTemp("", "unspool-source"); err != nil {
		problem(fmt.Sprintf("source is not shown: %v", err))
	}
	s.cwd, _ = os.Getwd()
	return s
}

// close removes the copies.
func (s *sources) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// arguments make pprof look for the copies. Without a path to trim, pprof would guess one.
func (s *sources) arguments() []string {
	return []string{"-source_path=" + cmp.Or(s.dir, "/nonexistent"), "-trim_path=" + buildRoot}
}

// buildRoot is used for the build directory in names; pprof removes it from each name.
const buildRoot = "/proc/self/cwd"

// masked is the name of a file for pprof, whether the file is shown or not.
func (s *sources) masked(file string) string {
	if file == "" {
		return "" // unknown
	}
	clean := path.Clean("/" + file)
	if rest, ok := strings.CutPrefix(clean, buildRoot+"/"); ok {
		return s.mask + "./" + rest
	}
	if !path.IsAbs(file) {
		return s.mask + "." + clean
	}
	return s.mask + clean
}

// maskAll gives the functions of p the names of the copies; restore undoes that.
func (s *sources) maskAll(p *proto.Profile) (restore func()) {
	own := make([]string, len(p.Function))
	for i, f := range p.Function {
		own[i] = f.Filename
		f.Filename = s.masked(f.Filename)
	}
	return func() {
		for i, f := range p.Function {
			f.Filename = own[i]
		}
	}
}

// page serves a page of pprof that may have source in it, one at a time.
func (s *sources) page(made http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for ; len(s.named) > 0 && r.Context().Err() == nil; s.named = s.named[1:] {
			s.offer(s.named[0])
		}
		held := &held{ResponseWriter: w}
		made.ServeHTTP(held, r)
		io.WriteString(w, s.unmask(held.page.String()))
	})
}

// held keeps the page that is written, instead of sending it.
type held struct {
	http.ResponseWriter
	page bytes.Buffer
}

func (h *held) Write(b []byte) (int, error) { return h.page.Write(b) }

var heading = regexp.MustCompile(`<p class="filename">([^<]*)</p>`)

// unmask gives the files on a page their own names, and adds why a file is not shown.
func (s *sources) unmask(page string) string {
	page = heading.ReplaceAllStringFunc(page, func(p string) string {
		masked := html.UnescapeString(heading.FindStringSubmatch(p)[1])
		if why := s.refusal(masked); why != "" {
			return strings.TrimSuffix(p, "</p>") + html.EscapeString(" (not shown: "+why+")") + "</p>"
		}
		return p
	})
	return s.plain(page)
}

func (s *sources) plain(text string) string {
	return strings.NewReplacer(s.mask+"./", "", s.mask, "").Replace(text)
}

// refusal returns why a file is not shown, and reports it once.
func (s *sources) refusal(masked string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[masked]
	if f == nil || f.refusal == "" {
		return ""
	}
	if !f.told {
		f.told = true
		s.problem(s.plain(masked) + ": not shown: " + f.refusal)
	}
	return f.refusal
}

// offer copies a file that an image names, unless it is copied already.
func (s *sources) offer(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	masked := s.masked(file)
	if s.closed || s.dir == "" || s.files[masked] != nil {
		return
	}
	if len(s.files) >= maxSources {
		s.overflow()
		return
	}
	f := &source{}
	s.files[masked] = f
	if err := s.copy(masked); err != nil && !missing(err) {
		f.refusal = words(err)
	}
}

// overflow reports once that there are too many files.
func (s *sources) overflow() {
	if !s.full {
		s.full = true
		s.problem(fmt.Sprintf("source is shown of %d files only", maxSources))
	}
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

// words is the text of an error, without the name of the file, which the caller prints before it.
func words(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Sprintf("uid %d, as which unspool serves, may not read it", os.Geteuid())
	}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return err.Error()
}

// copy copies a file to its name for pprof.
func (s *sources) copy(masked string) error {
	var failed error
	for _, place := range s.places(masked) {
		text, found, err := s.read(place)
		if !found {
			if failed == nil || missing(failed) {
				failed = err
			}
			continue
		}
		if err != nil {
			return err
		}
		to := filepath.Join(s.dir, masked)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		s.copied += len(text)
		return os.WriteFile(to, text, 0o600)
	}
	return failed
}

// places are the paths at which a file may be.
func (s *sources) places(masked string) []string {
	name, relative := strings.CutPrefix(masked, s.mask+".")
	if !relative {
		return []string{strings.TrimPrefix(masked, s.mask)}
	}
	var all []string
	for dir := s.cwd; dir != ""; dir = filepath.Dir(dir) {
		all = append(all, filepath.Join(dir, name))
		if dir == "/" {
			break
		}
	}
	return all
}

// read reads a file, and reports whether there is one that can be opened. It gives up if that takes too long.
func (s *sources) read(place string) (text []byte, found bool, err error) {
	if s.slow >= maxSlow {
		return nil, false, errors.New("other files took too long to be read")
	}
	type result struct {
		text  []byte
		found bool
		err   error
	}
	done := make(chan result, 1)
	left := min(maxSize, maxCopied-s.copied)
	go func() {
		var r result
		r.text, r.found, r.err = readRegular(place, left)
		done <- r
	}()
	late := time.NewTimer(slow)
	defer late.Stop()
	select {
	case r := <-done:
		return r.text, r.found, r.err
	case <-late.C:
		s.slow++
		return nil, false, fmt.Errorf("it could not be read within %v", slow)
	}
}

// readRegular opens a regular file, and reads it if it is not longer than limit.
func readRegular(place string, limit int) (text []byte, found bool, err error) {
	file, err := debugfile.Open("/", place)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	text, err = io.ReadAll(io.LimitReader(file, int64(limit)+1))
	switch {
	case err != nil:
	case len(text) > maxSize:
		err = fmt.Errorf("it is longer than %d MiB", maxSize>>20)
	case len(text) > limit:
		err = fmt.Errorf("the files shown are longer than %d MiB together", maxCopied>>20)
	case bytes.Count(text, []byte("\n")) > maxLines:
		err = fmt.Errorf("it has more than %d lines", maxLines)
	}
	return text, true, err
}
