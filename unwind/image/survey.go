package image

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"unspool/unwind/asm"
	"unspool/vmas/credit"
	"unspool/vmas/sys"
)

// Rules for code that CFI does not cover need a survey of all the code of the file, once. That takes up to
// some hundred milliseconds, for which the rings cannot wait. So it is made on a goroutine of the reader,
// like all that takes long, and waited for as long as the rings have some room. After that, stacks end in
// that code until it is there.

// A survey is that of an image.
type survey struct {
	made    *asm.Survey     // nil as long as it is not there
	making  *task[surveyed] // nil unless it is under way, or could not be made
	name    string          // of what is read
	late    lateness
	missing bool // it was asked for, and was not there
	told    bool // it was reported that it could not be made
}

// surveyed is the result of a task.
type surveyed struct {
	survey *asm.Survey   // nil if err is not
	cpu    time.Duration // that it took
	err    error
}

// A surveyor is a user whose processes have files that need surveys. They may cost a machine's large
// libraries at first, and a part of the time; also those of files that are not mapped any more when they are
// made.
type surveyor struct {
	credit  credit.Credit
	running []*surveyRunning
}

type surveyRunning struct {
	*task[surveyed]
	began time.Time
}

const (
	surveyShare   = 8
	mostSurveys   = 2 * time.Second
	surveysAtOnce = 2
	surveyHangs   = 10 * time.Second // what takes longer waits for a file, and others do not wait for it
)

// settle charges for the surveys that have been made.
func (u *surveyor) settle(now time.Time) {
	u.running = slices.DeleteFunc(u.running, func(r *surveyRunning) bool {
		if !r.isDone() {
			return now.Sub(r.began) > surveyHangs
		}
		u.credit.Spend(r.result.cpu)
		return true
	})
}

// surveyed gives the survey of the image's code, nil if it is not there.
func (im *Image) surveyed() *asm.Survey {
	v, s := &im.survey, im.store
	if v.made != nil || im.source == nil {
		return v.made
	}
	user := s.surveyorOf(im.source)
	if v.making == nil {
		now := time.Now()
		user.settle(now)
		isSpent := !user.credit.Allows(now)
		if s.rules.limited && (isSpent || len(user.running) >= surveysAtOnce) {
			if isSpent {
				im.overBudget()
			}
			v.missing = true
			return nil
		}
		path, source, quota := im.Path, im.source, s.tables
		v.name = "the code without unwind tables in " + path
		v.making = newTask(func() surveyed { return makeSurvey(path, source, quota) }, nil)
		v.making.goesThrough(source)
		user.running = append(user.running, &surveyRunning{v.making, now})
	}
	if !s.awaitWith(&s.surveying, &v.making.job, v.name, &v.late) {
		v.missing = true
		return nil
	}
	user.settle(time.Now())
	done := v.making.result
	switch {
	case done.err == nil:
		v.made, v.making = done.survey, nil
		return v.made
	case errors.Is(done.err, errCut), errors.Is(done.err, errClosed):
		im.spoil(done.err)
	case !v.told:
		v.told = true
		s.Report(im.Path, done.err)
	}
	v.missing = true
	return nil
}

// surveyorOf is the user of the process for which a file was opened.
func (s *Store) surveyorOf(of *source) *surveyor {
	const users = 1 << 10
	uid := nobody
	if of.file != nil {
		uid = of.file.uid
	}
	u := s.surveyors[uid]
	if u == nil {
		if len(s.surveyors) >= users {
			clear(s.surveyors)
		}
		u = &surveyor{credit: credit.New(surveyShare, mostSurveys)}
		s.surveyors[uid] = u
	}
	return u
}

// makeSurvey reads the tables of a file again, as those of its image are in use, and all that is needed for a
// survey.
func makeSurvey(path string, s *source, q *quota) (done surveyed) {
	runtime.LockOSThread() // for its CPU time
	defer runtime.UnlockOSThread()
	began := sys.ThreadTime()
	defer func() { done.cpu = max(sys.ThreadTime()-began, 0) }()
	t := readTables(path, s, q)
	defer t.share.giveBack()
	if done.err = t.err; done.err != nil {
		return done
	}
	if t.layout == nil {
		done.survey = new(asm.Survey)
		return done
	}
	if _, err := s.hold(); err != nil {
		done.err = fmt.Errorf("%s: %w", path, err)
		return done
	}
	defer s.release()
	made := asm.NewSurvey(s.contents(), t.layout, asm.Covered{FDEs: t.fdes})
	if s.changed() {
		done.err = fmt.Errorf("%s: %w", path, errCut)
		return done
	}
	done.survey = made
	return done
}
