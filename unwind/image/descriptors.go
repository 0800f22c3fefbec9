package image

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/fileid"
	"unspool/vmas"
)

// descriptors bounds how many files are open at a time. Every file is opened when it is mapped, as its
// process may be gone soon, and any user can map any number of files. So a new file closes the least recently
// used one of the user whose processes have most files open. A closed file is opened again when it is to be
// read.
type descriptors struct {
	mu    sync.Mutex
	most  int // at a time
	open  int // with those that are being opened or closed
	users map[uint32]*filesOfUser
}

// filesOfUser are the files that processes of one user were the first to map.
type filesOfUser struct {
	open    int       // with those that are being opened or closed
	closing int       // of these, being closed
	list    list.List // of *descriptor, those that are open, the most recently used one in front
}

const (
	mostDescriptors = 16384 // whatever the limit of this process is
	leastOpen       = 32
)

func newDescriptors(most int) *descriptors {
	return &descriptors{most: most, users: make(map[uint32]*filesOfUser)}
}

// ownDescriptors are those of this process: half of what it may still open. The other half is for rings,
// outputs, and files that are read and closed at once.
var ownDescriptors = sync.OnceValue(func() *descriptors {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024
	}
	left := int(min(limit.Cur, 2*mostDescriptors))
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		left -= len(open)
	}
	return newDescriptors(max(left/2, leastOpen))
})

// mostOfOne is how many files of one user may be open, so that others have room left if these cannot be
// closed because their server does not answer.
func (ds *descriptors) mostOfOne() int { return ds.most / 2 }

// mostClosing is how many files of one user may be in the middle of being closed: a server decides how long
// that takes.
func (ds *descriptors) mostClosing() int { return ds.most / 4 }

// errNoRoom means that no file can be closed to make room.
var errNoRoom = fmt.Errorf("too many files of this user's processes are open or cannot be closed: %w",
	unix.EMFILE)

// room reserves room for one more file of a user.
func (ds *descriptors) room(uid uint32) error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	u := ds.users[uid]
	if u == nil {
		u = new(filesOfUser)
	}
	switch {
	case u.open >= ds.mostOfOne():
		if !ds.closesOne(u) {
			return errNoRoom
		}
	case ds.open >= ds.most:
		if from := ds.fullest(); from == nil || !ds.closesOne(from) {
			return errNoRoom
		}
	}
	ds.users[uid] = u
	ds.open++
	u.open++
	return nil
}

// fullest is the user with most files open among those of whom one can be closed. The caller holds mu.
func (ds *descriptors) fullest() (found *filesOfUser) {
	for _, u := range ds.users {
		if u.closing < ds.mostClosing() && u.list.Len() > 0 && (found == nil || u.open > found.open) {
			found = u
		}
	}
	return found
}

// closesOne starts to close the least recently used file of a user, if there is one. The caller holds mu.
func (ds *descriptors) closesOne(u *filesOfUser) bool {
	if u.closing >= ds.mostClosing() {
		return false
	}
	for e := u.list.Back(); e != nil; e = e.Prev() {
		if d := e.Value.(*descriptor); d.uses == 0 {
			d.shut(u)
			return true
		}
	}
	return false
}

// giveBack gives back the room of a file that is closed.
func (ds *descriptors) giveBack(uid uint32) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.gaveBack(uid)
}

func (ds *descriptors) gaveBack(uid uint32) {
	u := ds.users[uid]
	ds.open--
	if u.open--; u.open == 0 {
		delete(ds.users, uid)
	}
}

// A descriptor is the file of a source: open, or closed and ready to be opened again. It has room among the
// descriptors while it is open.
type descriptor struct {
	of     *descriptors
	uid    uint32  // of the process that mapped it
	reader *reader // closes it
	device uint64

	// under of.mu
	file   *os.File // nil while it is closed
	uses   int      // from hold to release
	place  *list.Element
	gone   bool      // it was closed for good
	places [2]opener // where it was mapped first and last; the last one is empty until foundAt
}

// An opener opens the file at a place where it was mapped. It is a value: one is noted for each mapping of a
// file that is known, and a function would be allocated for each.
type opener struct {
	find finder
	pid  uint32
	at   vmas.Mapping
}

func (o *opener) open() (*os.File, error) { return o.find.file(o.pid, &o.at) }

func (o *opener) isEmpty() bool { return o.at.File == nil }

// newDescriptor is the descriptor of an open file, for which there is room.
func newDescriptor(of *descriptors, r *reader, uid uint32, device uint64, file *os.File,
	again opener) *descriptor {
	d := &descriptor{of: of, reader: r, uid: uid, device: device, file: file}
	d.places[0] = again
	of.mu.Lock()
	d.place = of.users[uid].list.PushFront(d)
	of.mu.Unlock()
	return d
}

// foundAt notes where the file was mapped last: the process that mapped it first may be gone.
func (d *descriptor) foundAt(again opener) {
	d.of.mu.Lock()
	d.places[1] = again
	d.of.mu.Unlock()
}

// shut starts to close a file that is not in use. The caller holds mu.
func (d *descriptor) shut(u *filesOfUser) {
	u.list.Remove(d.place)
	file := d.file
	d.file = nil
	d.discard(file, u)
}

// discard closes a file on a goroutine of the reader, as its server may not answer. The caller holds mu.
func (d *descriptor) discard(file *os.File, u *filesOfUser) {
	ds, uid := d.of, d.uid
	u.closing++
	j := newJob(func() {
		file.Close()
		ds.mu.Lock()
		u.closing--
		ds.gaveBack(uid)
		ds.mu.Unlock()
	}, d.device)
	j.user = firstUser + uint64(uid)
	d.reader.urge(j)
}

// holdOpen returns the file, for use until release, or nil if it is closed. It does not block.
func (d *descriptor) holdOpen() *os.File {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	return d.held()
}

func (d *descriptor) held() *os.File {
	if d.file == nil || d.gone {
		return nil
	}
	d.of.users[d.uid].list.MoveToFront(d.place)
	d.uses++
	return d.file
}

// hold returns the file, for use until release. A closed file is opened again, which may block; same says
// whether the file found is the one that was closed.
func (d *descriptor) hold(same func(*os.File) error) (*os.File, error) {
	if file := d.holdOpen(); file != nil {
		return file, nil
	}
	file, err := d.open(same)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errClosed, err)
	}
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	if other := d.held(); other != nil { // somebody else was faster
		d.discard(file, d.of.users[d.uid])
		return other, nil
	}
	if d.gone {
		d.discard(file, d.of.users[d.uid])
		return nil, fmt.Errorf("%w: %w", errClosed, os.ErrClosed)
	}
	d.file, d.uses = file, 1
	d.place = d.of.users[d.uid].list.PushFront(d)
	return file, nil
}

// errClosed means that a file was closed in favour of others and cannot be opened again.
var errClosed = errors.New("closed, as too many files were open, and not opened again")

// open opens the file again.
func (d *descriptor) open(same func(*os.File) error) (*os.File, error) {
	if err := d.of.room(d.uid); err != nil {
		return nil, err
	}
	d.of.mu.Lock()
	places := d.places
	d.of.mu.Unlock()
	first := fileid.ErrReplaced
	for i := range places {
		if places[i].isEmpty() {
			continue
		}
		file, err := places[i].open()
		if err == nil {
			if err = same(file); err == nil {
				return file, nil
			}
			file.Close()
		}
		if i == 0 {
			first = err
		}
	}
	d.of.giveBack(d.uid)
	return nil, first
}

// release ends a use.
func (d *descriptor) release() {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	if d.uses--; d.uses == 0 && d.gone {
		d.shut(d.of.users[d.uid])
	}
}

// close closes the file for good, when it is not in use any more. It does not block.
func (d *descriptor) close() {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	if d.gone {
		return
	}
	d.gone = true
	if d.file != nil && d.uses == 0 {
		d.shut(d.of.users[d.uid])
	}
}
