package image

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/fileid"
	"unspool/unwind/jit"
	"unspool/unwind/module"
	"unspool/vmas"
	"unspool/vmas/credit"
	"unspool/vmas/process"
)

// A Store holds the images of all mapped files, each once. Which image a file has does not depend on its name
// but on the opened file: on its build ID and segments, else on inode and generation.
type Store struct {
	hooks Hooks
	find  finder

	reader    reader
	files     fileWait      // for files and their tables
	ids       credit.Credit // of time to wait for build IDs
	surveying fileWait      // for surveys
	rules     ruleTime
	surveyors map[uint32]*surveyor // by user of the processes
	tables    *quota               // of memory, for tables
	code      *quota               // of memory, for code

	byKey   map[string]*Image // those with a build ID
	byInode map[inode]*Image
	settled map[*vmas.File]*settled
	// renewals has an entry for each mapped file that was replaced or written to.
	renewals map[*vmas.File]*renewal
	// comparing has the comparisons that are under way, late the images whose debug files are being looked
	// for.
	comparing map[*vmas.Copied]*task[bool]
	late      []*Image
	arrivals  uint64 // see Arrivals

	kept *keeping // nil where files are not kept
}

// Hooks are told what happens to files. Each may be nil. They are called on the goroutine that uses the store.
type Hooks struct {
	// Failed is called once for each file that cannot be used.
	Failed func(path string, err error)
	// Dropped is called for each sampled image that Forget drops, if no record had its build ID.
	Dropped func(name string, id []byte)
	// Unidentified is called for each sampled image without a build ID, if no record had one either: when it is
	// sampled first.
	Unidentified func(name string)
	// Copied is called for each mapping that turns out to hold the
	// code of m.Copied.File.
	Copied func(pid uint32, m *vmas.Mapping)
}

// A Config has the settings of a store.
type Config struct {
	// Proc is where processes are looked up, "/proc" on a running system, "" to look at none.
	Proc string
	// Processes, if set, is used in place of Proc.
	Processes process.Access
	// Offline, if set, says where the files of a recording are. Then no process is looked at.
	Offline *Offline
	// Hurried means that samples come from a running recording: a file is waited for only as long as the rings
	// have room, and samples are unwound without it after that.
	Hurried bool
	// Room reports whether the rings have much room; nil if that is not known.
	Room func() bool
	// SomeRoom reports whether they have some room. As long as they have, surveys are waited for, as a file has
	// one only once. It may be nil, likewise.
	SomeRoom func() bool
	// Waits is called every few milliseconds while a recording waits for a file, also in the middle of a walk.
	// Of the store, it may call Ahead only. It may be nil.
	Waits func()
	// Stop ends all waiting when it is closed; it may be nil.
	Stop <-chan struct{}
	// KeepFiles is of how many bytes of files that no process maps any more [Store.Files] returns files, too; 0 for
	// none.
	KeepFiles int64
	// Hooks are told what becomes of files.
	Hooks Hooks
}

// NewStore returns an empty store that opens files through procRoot,
// "/proc" on a running system, and waits for them as long as it takes.
func NewStore(procRoot string) *Store { return New(Config{Proc: procRoot}) }

// New returns an empty store.
func New(c Config) *Store {
	s := &Store{
		hooks:     c.Hooks,
		find:      finder{access: c.Processes, offline: c.Offline},
		files:     newFileWait(&c, c.Room),
		surveying: newFileWait(&c, c.SomeRoom),
		ids:       credit.New(shareForIDs, mostForIDs),
		rules:     newRuleTime(c.Hurried),
		tables:    newQuota(maxOfAll),
		code:      newQuota(maxOfCode),
		byKey:     make(map[string]*Image),
		byInode:   make(map[inode]*Image),
		settled:   make(map[*vmas.File]*settled),
		renewals:  make(map[*vmas.File]*renewal),
		comparing: make(map[*vmas.Copied]*task[bool]),
		surveyors: make(map[uint32]*surveyor),
	}
	s.find.files, s.find.reader = ownDescriptors(), &s.reader
	s.reader.beside = c.Hurried
	switch {
	case c.Offline != nil:
		s.find.access = nil
	case s.find.access == nil && c.Proc != "":
		s.find.access = process.Direct(c.Proc)
	}
	if s.find.access != nil {
		s.reader.owner = s.find.owner
	}
	if c.KeepFiles > 0 {
		s.kept = &keeping{most: c.KeepFiles, known: make(map[keptFile]bool), of: make(map[uint32]int)}
	}
	return s
}

// Report tells of a file that cannot be used.
func (s *Store) Report(path string, err error) {
	if s.hooks.Failed != nil {
		s.hooks.Failed(path, err)
	}
}

// isOffline reports whether the files are those of a recording.
func (s *Store) isOffline() bool { return s.find.offline != nil }

// Source says from where generated code is read, which depends on where files are read from.
func (s *Store) Source() jit.Source {
	switch {
	case s.isOffline():
		return jit.Recordings
	case s.find.access == nil:
		return jit.DumpsOnly
	}
	return jit.Live
}

// ReadMemory reads memory of a process up to what cannot be read, and returns how many bytes that was.
func (s *Store) ReadMemory(pid uint32, buf []byte, addr uint64) int {
	return s.find.access.ReadMemory(pid, buf, addr)
}

// Module is [Store.Lookup] for the walk.
func (s *Store) Module(pid uint32, m *vmas.Mapping) module.Module {
	if im := s.Lookup(pid, m); im != nil {
		return im
	}
	return nil
}

// Lookup returns the image behind a mapping, nil if it can have no file.
func (s *Store) Lookup(pid uint32, m *vmas.Mapping) *Image {
	im := s.lookup(pid, m)
	if im == nil {
		return nil
	}
	if lost := s.lost(m); lost != nil {
		return lost
	}
	return im
}

// lost is the image for a mapping of what is not in its file any more, nil for all others.
func (s *Store) lost(m *vmas.Mapping) *Image {
	if r := s.renewals[m.File]; r != nil && m.Time < r.time {
		return r.lost
	}
	return nil
}

// A renewal says when a file was first mapped after it was written to or replaced. Mappings from before have
// the image lost, which has no rules.
type renewal struct {
	time uint64
	lost *Image
}

// renew notes that f is another file than before for mappings from time on.
func (s *Store) renew(f *vmas.File, time uint64) {
	err := fmt.Errorf("%s: %w", f.Path, errWritten)
	s.Report(f.Path, err)
	s.renewals[f] = &renewal{time, &Image{store: s, Path: f.Path, name: f.Name(), err: err}}
}

func (s *Store) lookup(pid uint32, m *vmas.Mapping) *Image {
	im, ok := m.File.Image.(*Image)
	switch {
	case m.Copied == nil && ok:
		return im
	case m.Copied == nil && m.File.Image == nil && !m.File.Kind.HasImage():
		return nil // as attach says; walks of generated code ask this for each frame
	case m.Copied == nil:
		return s.attach(pid, m)
	case !ok && m.File.Kind.HasImage():
		im = s.attach(pid, m)
	}
	if im != nil {
		if err := im.Parse(); err == errLate || err == nil && !im.IsGenerated() {
			return im // a file in memory that is, or may be, an ELF file
		}
	}
	return s.copied(pid, m)
}

// attach determines the image behind a mapping whose file has none yet, nil if it can have no file.
func (s *Store) attach(pid uint32, m *vmas.Mapping) *Image {
	o := s.opening(pid, m)
	if o == nil {
		return nil
	}
	if !s.await(&o.job, m.File.Path, &o.late) {
		return o.standIn
	}
	return s.adopt(m.File, o)
}

// Open makes sure that the file behind a new mapping of a process is opened, so that it can be read when the
// process is gone. It does not wait for that. For a file that is known, its size and times are looked at: if
// it was rewritten in place since it was read, it becomes another image. A file that could not be opened
// before is tried again.
func (s *Store) Open(pid uint32, m *vmas.Mapping) {
	if o, opens := m.File.Image.(*opening); opens && o.sent {
		if !o.isDone() {
			at := *m // it may be another file than the one that is being opened
			o.again, o.againPID = &at, pid
			return
		}
		s.adopt(m.File, o)
	}
	im, ok := m.File.Image.(*Image)
	switch {
	case !ok:
		if o := s.opening(pid, m); o != nil && !o.sent {
			s.reader.submit(&o.job)
		}
		return
	case s.isOffline():
	case !im.opened:
		s.Forget(m.File)
		if errors.Is(im.err, errWritten) {
			s.renew(m.File, m.Time)
		}
		s.Open(pid, m)
		return
	default:
		was := s.settled[m.File]
		if was.isLookedAt(m) {
			return
		}
		s.reopen(pid, m, im)
		if was != nil && s.settled[m.File] == was && im.source != nil && im.source.isFile(&was.inode) {
			im.source.file.foundAt(s.find.opener(pid, m))
		}
		if m.File.Image == im {
			was.lookAt(m)
		}
	}
	im.debug.pid = pid
}

// Ahead is Open for files that are not known: all that may be done while another file is waited for.
func (s *Store) Ahead(pid uint32, m *vmas.Mapping) {
	if m.File.Image != nil {
		return
	}
	if o := s.opening(pid, m); o != nil {
		s.reader.submit(&o.job)
	}
}

// BuildID is the build ID of the file behind a mapping that was passed to Open, nil if it has none or is not
// open yet. It is waited for only in passing: most files that are mapped are never sampled, and where there
// are many new ones, waiting for each would take longer than the rings take to fill.
func (s *Store) BuildID(pid uint32, m *vmas.Mapping) []byte {
	if o, ok := m.File.Image.(*opening); ok {
		s.identify(pid, m, o)
	}
	if im, ok := m.File.Image.(*Image); ok && s.lost(m) == nil {
		return im.BuildID
	}
	return nil
}

// identify looks at the file behind a mapping if it is open, or may be waited for.
func (s *Store) identify(pid uint32, m *vmas.Mapping, o *opening) {
	if !s.files.limited || o.isDone() {
		s.Lookup(pid, m)
		return
	}
	left := s.ids.Left(time.Now())
	if left <= 0 || !o.sent {
		return
	}
	s.reader.prefer(&o.job)
	took, came := s.files.take(o.done, min(left, s.files.turn()))
	s.ids.Spend(took)
	if came {
		s.Lookup(pid, m)
	} else {
		s.reader.relieve()
	}
}

// Identifies reports whether a recording has a file's build ID. It is true for running processes, whose files
// are read as they are mapped.
func (s *Store) Identifies(f *vmas.File) bool {
	return !s.isOffline() || !s.find.offline.buildID(f).IsZero()
}

// An opening is a file that is being opened. It takes the place of the file's image until then.
type opening struct {
	task[opened]
	pid     uint32
	before  *Image // the file's image until now; nil for a new file
	since   uint64 // the time of the mapping for which it is opened again
	standIn *Image // returned as long as the file is not open
	late    lateness

	again    *vmas.Mapping // the last mapping since it began, nil if there was none
	againPID uint32
}

// errLate is the error of an image that is not read yet.
var errLate = errors.New("not read yet")

// opening returns the opening of the file behind m, a new one if there is none yet; nil if m can have no
// file. A new one still has to be submitted.
func (s *Store) opening(pid uint32, m *vmas.Mapping) *opening {
	if o, ok := m.File.Image.(*opening); ok {
		return o
	}
	if !m.File.Kind.HasImage() {
		return nil
	}
	find, at := s.find, *m
	return s.begin(pid, m.File, func() opened { return find.open(pid, &at) })
}

// begin makes the opening of a file by the function open.
func (s *Store) begin(pid uint32, f *vmas.File, open func() opened) *opening {
	o := &opening{task: *newTask[opened](nil, nil), pid: pid}
	o.do = func() { o.result = open() }
	o.drop = func() { o.result.close() }
	o.device, o.job.pid = unix.Mkdev(f.Major, f.Minor), pid
	o.standIn = &Image{store: s, Path: f.Path, name: f.Name(), err: errLate}
	f.Image = o
	return o
}

// reopen opens the file behind m again if it may have changed since im became its image.
func (s *Store) reopen(pid uint32, m *vmas.Mapping, im *Image) {
	seen := s.settled[m.File]
	if seen == nil {
		return
	}
	was := seen.inode
	var o *opening
	switch {
	case im.source == nil || !im.source.isFile(&was) || !im.source.isOpen() ||
		im.source.notELF && im.source.rewritten(&was):
		// The image is that of another file with the same build ID, or is no ELF file, or its file was
		// closed: look at the path.
		find, at := s.find, *m
		o = s.begin(pid, m.File, func() opened { return find.openAgain(pid, &at, was) })
		o.before, o.since = im, m.Time
	case !im.source.rewritten(&was):
		return
	case im.BuildID != nil && !im.source.changed():
		// The file has another name or mode now, or its time was reset after it was written to: read its
		// build ID.
		uid := im.source.file.uid
		file := s.again(im.source)
		if file == nil {
			return
		}
		find, at := s.find, *m
		o = s.begin(pid, m.File, func() opened { return find.opened(file, uid, pid, &at) })
		o.before, o.since = im, m.Time
	default:
		// The path may lead to another file by now, or to none.
		uid := im.source.file.uid
		file := s.again(im.source)
		s.Forget(m.File)
		s.renew(m.File, m.Time)
		if file == nil {
			s.Open(pid, m)
			return
		}
		find, at := s.find, *m
		o = s.begin(pid, m.File, func() opened { return find.opened(file, uid, pid, &at) })
	}
	s.reader.submit(&o.job)
}

// again duplicates the descriptor of an open source and reserves room for it; nil if that fails.
func (s *Store) again(src *source) *os.File {
	file, err := src.again()
	if err != nil {
		return nil
	}
	if s.find.files.room(src.file.uid) != nil {
		file.Close()
		return nil
	}
	return file
}

// Arrivals is how often something has come that questions were answered without before: that a file was
// opened, its tables, or a piece of its code.
func (s *Store) Arrivals() uint64 { return s.arrivals }

// await reports whether a job is done, after waiting for it as long as that is allowed. The job reads the file
// at path, which is reported once if it does not come.
func (s *Store) await(j *job, path string, late *lateness) bool {
	return s.awaitWith(&s.files, j, path, late)
}

func (s *Store) awaitWith(w *fileWait, j *job, path string, late *lateness) bool {
	if j.isDone() {
		return true
	}
	err := error(nil)
	sent := j.sent || s.reader.submit(j)
	s.reader.prefer(j)
	came := sent && w.wait(j.done, late)
	s.rules.resetCPU() // what the thread did meanwhile, which may be the job itself, is not charged
	switch {
	case came:
		return true
	case !sent:
		err = fmt.Errorf("%s: not read: too many files are waiting for a file system that does not answer", path)
	default:
		s.reader.relieve()
		if late.waited < mostForOne {
			return false
		}
		err = fmt.Errorf("%s: not read within %v; samples are unwound without it until then", path, mostForOne)
	}
	if !late.told {
		late.told = true
		s.Report(path, err)
	}
	return false
}

// adopt determines which image a file has that was opened.
func (s *Store) adopt(f *vmas.File, o *opening) *Image {
	s.arrivals++
	found := o.result
	f.Image = nil
	if o.before != nil && found.is(o.before) {
		s.settled[f] = &settled{inode: found.source.inode}
		found.close()
		found.same = true
	}
	if found.same {
		f.Image = o.before
		return o.before
	}
	if o.before != nil {
		s.release(f, o.before)
		s.renew(f, o.since)
	}
	im := s.imageOf(f, found)
	if im.err != nil {
		s.Report(f.Path, im.err)
	}
	if isPassing(im.err) {
		return im // the error says nothing about the file: the next sample tries again
	}
	im.refs++
	im.debug.pid = o.pid
	f.Image = im
	if o.again != nil {
		s.Open(o.againPID, o.again)
	}
	return im
}

// imageOf returns the image of a file, given the result of opening it.
func (s *Store) imageOf(f *vmas.File, found opened) *Image {
	if found.err != nil {
		if im := s.twin(f); im != nil {
			return im
		}
		if s.isOffline() && f.Kind == vmas.Memfd && s.find.offline.buildID(f).IsZero() {
			// The memfd is gone with its process. Most hold code that a runtime generated.
			return &Image{store: s, Path: f.Path, name: f.Name(), tables: new(tables)}
		}
		return &Image{store: s, Path: f.Path, name: f.Name(), err: found.err}
	}
	src := found.source
	if src.file != nil {
		s.settled[f] = &settled{inode: src.inode}
	}
	known := s.byInode[src.inode]
	key := ""
	if src.buildID != nil {
		key = src.key()
		known = s.byKey[key]
		if known != nil && known.source != nil && known.source.rewritten(&known.source.inode) {
			known = nil
		}
	}
	if known != nil {
		src.close()
		return known
	}
	im := &Image{store: s, Path: f.Path, name: f.Name(), BuildID: src.buildID, opened: true}
	im.source, im.key, im.inode = src, key, src.inode
	if key != "" {
		s.byKey[key] = im
	} else {
		s.byInode[src.inode] = im
	}
	return im
}

// twin returns the image with the build ID that the recording has for a file which was not found; nil if
// there is none, or more than one.
func (s *Store) twin(f *vmas.File) (found *Image) {
	if !s.isOffline() {
		return nil
	}
	id := s.find.offline.buildID(f).Bytes()
	for _, im := range s.byKey {
		if fileid.SameBuild(im.BuildID, id) {
			if found != nil {
				return nil
			}
			found = im
		}
	}
	return found
}

// isPassing reports whether an error is about a temporary lack of descriptors or memory.
func isPassing(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// Forget is for [vmas.NewTableOf]: it drops the image of a file that no
// process maps any more, unless the image has another name.
func (s *Store) Forget(f *vmas.File) {
	im, ok := f.Image.(*Image)
	if o, opens := f.Image.(*opening); opens {
		s.reader.abandon(&o.job)
		im, ok = o.before, o.before != nil
	}
	f.Image = nil
	delete(s.renewals, f)
	if ok {
		s.release(f, im)
	}
}

// release drops the image of a file, unless another file has it, too.
func (s *Store) release(f *vmas.File, im *Image) {
	delete(s.settled, f)
	delete(s.renewals, f)
	if im.refs--; im.refs > 0 {
		return
	}
	if im.hit && im.BuildID != nil && f.BuildID.IsZero() && s.hooks.Dropped != nil {
		s.hooks.Dropped(im.name, im.BuildID)
	}
	if im.key != "" && s.byKey[im.key] == im {
		delete(s.byKey, im.key)
	}
	if s.byInode[im.inode] == im {
		delete(s.byInode, im.inode)
	}
	s.kept.keep(im)
	im.forget()
}

// Sampled calls fn with name and build ID of every image that frames were in, in order of build IDs.
func (s *Store) Sampled(fn func(name string, id []byte)) {
	for _, key := range slices.Sorted(maps.Keys(s.byKey)) {
		if im := s.byKey[key]; im.hit {
			fn(im.name, im.BuildID)
		}
	}
}
