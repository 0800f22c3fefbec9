package image

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"unspool/vmas"
	"unspool/vmas/credit"
	"unspool/vmas/process"
)

// TestReaderWithJobsThatHang has many files of one device hang: files of other devices are read, no more
// goroutines are started for that device, and jobs beyond the queue's limit are refused.
func TestReaderWithJobsThatHang(t *testing.T) { synctest.Test(t, testJobsThatHang) }

func testJobsThatHang(t *testing.T) {
	const bad, good = 1, 2
	var r reader
	var begun atomic.Int32
	release := make(chan struct{})
	hanging := func() *job {
		return newJob(func() {
			begun.Add(1)
			<-release
		}, bad)
	}
	for range maxAtWork {
		if !r.submit(hanging()) {
			t.Fatal("refused the first jobs")
		}
	}
	time.Sleep(2 * hangsAfter)
	refused := 0
	for range 2 * maxOfOne {
		if !r.submit(hanging()) {
			refused++
		}
	}
	if refused != maxOfOne {
		t.Errorf("%d of %d jobs of a device that hangs were refused, want %d", refused, 2*maxOfOne, maxOfOne)
	}
	for range 2 * maxOfOne {
		j := newJob(func() {}, good)
		if !r.submit(j) {
			t.Fatal("a job of another device was refused")
		}
		if synctest.Wait(); !j.isDone() {
			t.Fatal("a job of another device waits for one that hangs")
		}
	}
	if n := begun.Load(); n != maxAtWork {
		t.Errorf("%d jobs of the device that hangs are running, want %d", n, maxAtWork)
	}
	close(release)
	last := newJob(func() {}, bad)
	if synctest.Wait(); !r.submit(last) {
		t.Fatal("a job is refused when nothing hangs any more")
	}
	<-last.done
	if n := int(begun.Load()); n != maxAtWork+maxOfOne {
		t.Errorf("%d jobs were done in the end, want %d", n, maxAtWork+maxOfOne)
	}
}

// TestReaderWithAUserWhoseJobsHang has files on ever more devices hang, all for the processes of one user:
// they get a share of the goroutines and of the queue, and the files of another user are read.
func TestReaderWithAUserWhoseJobsHang(t *testing.T) { synctest.Test(t, testUserWhoseJobsHang) }

func testUserWhoseJobsHang(t *testing.T) {
	const bad, good, perUser = 1, 2, 1000 // users; each has processes with so many PIDs
	r := reader{owner: func(pid uint32) uint32 { return pid / perUser }}
	var begun atomic.Int32
	release := make(chan struct{})
	newOf := func(user, n uint32, do func()) *job {
		j := newJob(do, uint64(user*perUser+n))
		j.pid = user*perUser + n
		return j
	}
	submitted, refused := 0, 0
	hang := func() {
		submitted++
		if !r.submit(newOf(bad, uint32(submitted), func() { begun.Add(1); <-release })) {
			refused++
		}
	}
	for began := time.Now(); begun.Load() < maxOfUser; r.relieve() {
		if submitted < 2*maxOfUser {
			hang()
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d jobs are running", begun.Load())
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * hangsAfter)
	for submitted < 4*maxOfOne {
		hang()
	}
	for range 2 * maxAtWork {
		r.relieve()
	}
	if want := submitted - maxOfUser - maxOfOne; refused != want {
		t.Errorf("%d of %d jobs of the user were refused, want %d", refused, submitted, want)
	}
	for n := range uint32(4 * maxOfOne) {
		j := newOf(good, n, func() {})
		if !r.submit(j) {
			t.Fatal("a job of another user was refused")
		}
		if synctest.Wait(); !j.isDone() {
			t.Fatal("a job of another user waits for those that hang")
		}
	}
	if n := begun.Load(); n != maxOfUser {
		t.Errorf("%d jobs of the user are running, want %d", n, maxOfUser)
	}
	close(release)
	if synctest.Wait(); int(begun.Load()) < submitted-refused {
		t.Fatalf("%d of %d jobs were done in the end", begun.Load(), submitted-refused)
	}
}

// TestAbandonedResults releases results that are not wanted any more, whether they are there already or come
// later.
func TestAbandonedResults(t *testing.T) {
	var r reader
	for _, early := range []bool{false, true} {
		release, dropped := make(chan struct{}), make(chan int, 1)
		task := newTask(func() int { <-release; return 7 }, func(v int) { dropped <- v })
		r.submit(&task.job)
		if early {
			r.abandon(&task.job)
		}
		close(release)
		<-task.done
		if !early {
			r.abandon(&task.job)
		}
		select {
		case v := <-dropped:
			if v != 7 {
				t.Errorf("gave back %d", v)
			}
		case <-time.After(time.Minute):
			t.Errorf("early %v: not given back", early)
		}
	}
}

// TestWaiting waits for what never comes: no longer than mostForOne for each file, and than the credit
// for all. The clock is that of the test: time for which nobody has a CPU does not count as waiting.
func TestWaiting(t *testing.T) { synctest.Test(t, testWaiting) }

func testWaiting(t *testing.T) {
	never, done := make(chan struct{}), make(chan struct{})
	close(done)
	w := newFileWait(&Config{Hurried: true}, nil)
	began := time.Now()
	for range 100 {
		var late lateness
		for range 10 {
			if w.wait(never, &late) {
				t.Fatal("what never comes has come")
			}
		}
	}
	if took := time.Since(began); took < mostCredit/2 || took > 4*mostCredit {
		t.Errorf("waited %v for 100 files, with a credit of %v", took, mostCredit)
	}
	stop := make(chan struct{})
	endless := newFileWait(&Config{Stop: stop}, nil)
	if !endless.wait(done, new(lateness)) {
		t.Error("what is there was not seen")
	}
	close(stop)
	if endless.wait(never, new(lateness)) {
		t.Error("what never comes has come")
	}
}

// TestWaitingWithRoom waits for files that come late: they are there as long as the rings have room.
func TestWaitingWithRoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		files int
		comes time.Duration // after it is waited for
		room  bool
		want  int // how many come in time
	}{
		{"many soon, with room", 500, time.Millisecond, true, 500},
		{"many soon, without room", 500, time.Millisecond, false, 66}, // each costs 0.75 ms of 50
		{"one late, with room", 1, 190 * time.Millisecond, true, 1},
		{"one late, without room", 1, 190 * time.Millisecond, false, 0},
		{"many late, with room", 100, 190 * time.Millisecond, true, 1},
		{"many late, at the beginning", 100, 190 * time.Millisecond, true, 10},
		{"one, a second and a half late, at the beginning", 1, 1500 * time.Millisecond, true, 1},
		{"one too late, at the beginning", 1, 1800 * time.Millisecond, true, 0},
		{"one late without room, at the beginning", 1, 190 * time.Millisecond, false, 0},
		{"one too late", 1, 210 * time.Millisecond, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFileWait(&Config{Hurried: true}, func() bool { return c.room })
				if !strings.Contains(c.name, "beginning") {
					w.credit = credit.New(waitShare, mostWithRoom)
				}
				inTime := 0
				for range c.files {
					done := make(chan struct{})
					time.AfterFunc(c.comes, func() { close(done) })
					if w.wait(done, new(lateness)) {
						inTime++
					}
				}
				if inTime != c.want {
					t.Errorf("%d of %d files came in time, want %d", inTime, c.files, c.want)
				}
				time.Sleep(time.Second) // the last ones have come
			})
		})
	}
}

// TestPreferredJob has a job done before those that were submitted earlier.
func TestPreferredJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		var order []string
		release := make(chan struct{})
		for range maxAtWork {
			r.submit(newJob(func() { <-release }, 0))
		}
		var wanted *job
		for _, name := range []string{"a", "b", "c", "d"} {
			wanted = newJob(func() { order = append(order, name) }, 0)
			r.submit(wanted)
		}
		r.prefer(wanted)
		release <- struct{}{} // one goroutine works on
		synctest.Wait()
		if got := strings.Join(order, " "); got != "d a b c" {
			t.Errorf("done in the order %s", got)
		}
		r.prefer(wanted) // it is done
		close(release)
		synctest.Wait()
	})
}

// slowFiles takes 10 ms for each file that it opens, half a minute for the one that hangs, and finds none.
type slowFiles struct{ process.Access }

func (slowFiles) Owner(uint32) (uint32, error) { return 0, nil }

func (slowFiles) OpenPath(_ uint32, path string, _, _ uint64) (*os.File, error) {
	if path == "/hangs" {
		time.Sleep(30 * time.Second)
	}
	time.Sleep(10 * time.Millisecond)
	return nil, os.ErrInvalid
}

func (slowFiles) OpenMapped(uint32, uint64, uint64) (*os.File, string, error) {
	return nil, "", os.ErrInvalid
}

// TestBuildIDsOfManyFiles asks for the build IDs of a thousand files that are mapped at once: the rings are
// not drained meanwhile, so that takes no longer than a part of the time that opening them takes.
func TestBuildIDsOfManyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		s := New(Config{Processes: slowFiles{}, Hurried: true, Room: func() bool { return true }})
		table := vmas.NewTable("")
		began := time.Now()
		for i := range uint64(n) {
			table.Mmap(1, vmas.Map{Addr: i << 12, Len: 1 << 12, Prot: vmas.ProtExec,
				Name: fmt.Appendf(nil, "/%d", i)})
			m := table.Space(1).Find(i << 12)
			s.Open(1, m)
			s.BuildID(1, m)
		}
		if took, most := time.Since(began), mostForIDs+mostForOne; took > most {
			t.Errorf("%d files took %v, more than %v", n, took, most)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		m := table.Space(1).Find((n - 1) << 12)
		if im := s.Lookup(1, m); im == nil || im.err == errLate {
			t.Error("the last one was never opened")
		}
	})
}

// TestBuildIDBesideAFileThatHangs: one file that does not come leaves time for the build IDs of others.
func TestBuildIDBesideAFileThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Processes: slowFiles{}, Hurried: true, Room: func() bool { return true }})
		table := vmas.NewTable("")
		for i, path := range []string{"/hangs", "/comes"} {
			addr := uint64(i) << 12
			table.Mmap(1, vmas.Map{Addr: addr, Len: 1 << 12, Prot: vmas.ProtExec, Name: []byte(path)})
			m := table.Space(1).Find(addr)
			s.Open(1, m)
			time.Sleep(5 * time.Millisecond)
			s.BuildID(1, m)
			if _, opens := m.File.Image.(*opening); opens != (path == "/hangs") {
				t.Errorf("%s: being opened: %t", path, opens)
			}
		}
		time.Sleep(time.Minute) // what hangs ends, too
	})
}

// TestWaitingInParts: a file that never comes has been waited for as long as one may be, however little
// credit other files have left for it each time, so that it is reported.
func TestWaitingInParts(t *testing.T) {
	for _, room := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newFileWait(&Config{Hurried: true}, func() bool { return room })
			w.credit = credit.New(waitShare, mostWithRoom)
			w.credit.Spend(mostCredit - 29500*time.Microsecond)
			if room {
				w.credit.Spend(mostWithRoom - mostCredit)
			}
			var late lateness
			for range 100 {
				if w.wait(make(chan struct{}), &late) {
					t.Fatal("what never comes has come")
				}
				time.Sleep(100 * time.Millisecond)
			}
			if late.waited < mostForOne {
				t.Errorf("with room %v, it was waited for %v", room, late.waited)
			}
		})
	}
}

// A job that goes through a large file has a processor of its own in a recording, and only there.
func TestLongJobsHaveAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, c := range []struct {
		beside     bool
		size       int64
		processors int
	}{
		{true, 10 << 20, 2}, {true, 100 << 10, 1}, {false, 10 << 20, 1},
	} {
		r, during := reader{beside: c.beside}, 0
		j := newJob(func() { during = runtime.GOMAXPROCS(0) }, 0)
		j.goesThrough(&source{size: c.size})
		r.submit(j)
		<-j.done
		if during != c.processors || runtime.GOMAXPROCS(0) != 1 {
			t.Errorf("%+v: %d processors, and %d afterwards", c, during, runtime.GOMAXPROCS(0))
		}
	}
	// However many hang, there are few.
	release := make(chan struct{})
	var begun, over sync.WaitGroup
	for range 10 * maxAtWork {
		begun.Add(1)
		over.Go(func() {
			onAnotherProcessor(func() {
				begun.Done()
				<-release
			})
		})
	}
	begun.Wait()
	during := runtime.GOMAXPROCS(0)
	close(release)
	over.Wait()
	if during != 1+maxAtWork || runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("%d processors while jobs hang, and %d afterwards", during, runtime.GOMAXPROCS(0))
	}
}
