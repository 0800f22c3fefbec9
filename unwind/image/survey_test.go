package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unspool/unwind/image/fusetest"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// holeSource is a library with 2 MiB of code without CFI, in which is a function whose rule needs a survey,
// and a function with CFI.
const holeSource = `
	.text
	.fill 0x200000, 1, 0x50
	.globl bare
	.type bare, @function
bare:	sub $8, %rsp
	nop
	add $8, %rsp
	ret
	.globl covered
	.type covered, @function
covered:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	nop
	nop
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`

// buildHole returns the folder of the library, its path, and the offsets in it of bare and covered.
func buildHole(t *testing.T) (dir, path string, bare, covered uint64) {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	dir = t.TempDir()
	source := filepath.Join(t.TempDir(), "hole.s")
	if err := os.WriteFile(source, []byte(holeSource), 0o644); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "hole.so")
	run(t, compiler, "-shared", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,--build-id=none", "-o", path, source)
	out, err := exec.Command("nm", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	// The first segment begins at offset 0 and address 0.
	for line := range strings.Lines(string(out)) {
		switch f := strings.Fields(line); f[len(f)-1] {
		case "bare":
			bare = address(t, f[0])
		case "covered":
			covered = address(t, f[0])
		}
	}
	return dir, path, bare, covered
}

// TestSurveyIsNotWaitedFor asks for a rule that needs a survey, which cannot be made, as the file hangs,
// while the rings have no room: no question waits for long, other rules are found, and this one once the file
// answers.
func TestSurveyIsNotWaitedFor(t *testing.T) {
	dir, path, bare, covered := buildHole(t)
	server := fusetest.Show(t, dir)
	path = filepath.Join(server.Dir, filepath.Base(path))
	var failed []string
	s := New(Config{Proc: "/proc", Hurried: true, Listener: Listener{
		Failed: func(path string, err error) { failed = append(failed, err.Error()) },
	}})
	const base = 0x400000
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	table.Mmap(1, vmas.Map{Addr: base, Len: 4 << 20, Prot: vmas.ProtExec, Name: []byte(path),
		ID: identity(t, path)})
	m := table.Space(1).Find(base)
	ask := func(at uint64) rule.Rule {
		s.Walks(1)
		return s.Lookup(1, m).Rule(m, base+at)
	}
	s.Open(1, m)
	for began := time.Now(); ask(covered) == rule.Unreadable; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the file has no rules")
		}
	}
	server.Be(t, fusetest.HangRead)
	stop := fusetest.Stopwatch()
	for range 100 {
		if r := ask(bare + 4); r != rule.Unreadable {
			t.Fatalf("%v before the survey", r)
		}
	}
	if took := stop(); took > 10*patienceForOne {
		t.Errorf("100 questions took %v", took)
	}
	if r := ask(covered + 2); r.Kind() == rule.Unreadable || r == rule.Uncovered {
		t.Errorf("%v of other code meanwhile", r)
	}
	if want := "code without unwind tables in " + path + ": not read within"; len(failed) != 1 ||
		!strings.Contains(failed[0], want) {
		t.Errorf("%q", failed)
	}
	server.Be(t, fusetest.Answer)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if r := ask(bare + 4); r != rule.Unreadable {
			if r != rule.GuessSP.With(2, 0) {
				t.Errorf("%v after the survey", r)
			}
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("no rule after the survey")
		}
	}
	if u := s.surveyorOf(s.Lookup(1, m).source); u.credit >= mostSurveys {
		t.Error("the survey costs nothing")
	}
}

// TestSurveysOfAUser: whoever has used up the time for surveys gets none, which is told once, and nobody else
// is hurt. A conversion is not bounded.
func TestSurveysOfAUser(t *testing.T) {
	_, path, bare, _ := buildHole(t)
	for _, hurried := range []bool{true, false} {
		var failed []string
		s := New(Config{Proc: "/proc", Hurried: hurried, Listener: Listener{
			Failed: func(path string, err error) { failed = append(failed, err.Error()) },
		}})
		const base = 0x400000
		table := vmas.NewTable("")
		table.Comm(1, 1, []byte("test"), true)
		table.Mmap(1, vmas.Map{Addr: base, Len: 4 << 20, Prot: vmas.ProtExec, Name: []byte(path),
			ID: identity(t, path)})
		m := table.Space(1).Find(base)
		im := s.Lookup(1, m)
		for im == nil {
			time.Sleep(time.Millisecond)
			im = s.Lookup(1, m)
		}
		for began := time.Now(); im.Parse() != nil; time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatal(im.Parse())
			}
		}
		ask := func() rule.Rule {
			s.Walks(1)
			return im.Rule(m, base+bare+4)
		}
		own, other := s.surveyorOf(im.source), s.surveyorOf(&source{file: &descriptor{uid: 12345}})
		own.credit, own.at = -time.Hour, time.Now()
		if r := ask(); hurried != (r == rule.Unreadable) {
			t.Errorf("hurried %v: %v", hurried, r)
		}
		ask()
		if told := len(failed); told > 1 || hurried != (told == 1) {
			t.Errorf("hurried %v: %q", hurried, failed)
		}
		if other.credit != mostSurveys {
			t.Errorf("another user has %v", other.credit)
		}
		own.credit = mostSurveys
		r := ask()
		for began := time.Now(); r == rule.Unreadable && time.Since(began) < 10*time.Second; r = ask() {
			time.Sleep(time.Millisecond)
		}
		if r != rule.GuessSP.With(2, 0) {
			t.Errorf("with credit: %v", r)
		}
	}
}

// TestSurveysThatAreGivenUp has a library mapped again and again, and unmapped once its survey is made,
// before that is used: it costs its user what it takes, and there are no more when that is used up.
func TestSurveysThatAreGivenUp(t *testing.T) {
	_, path, bare, _ := buildHole(t)
	s := New(Config{Proc: "/proc", Hurried: true})
	const base, pid, tries = 0x400000, 1, 10
	for n := range tries {
		table := vmas.NewTable("")
		table.Comm(pid, pid, []byte("test"), true)
		table.Mmap(pid, vmas.Map{Addr: base, Len: 4 << 20, Prot: vmas.ProtExec, Name: []byte(path),
			ID: identity(t, path)})
		m := table.Space(pid).Find(base)
		im := s.Lookup(pid, m)
		for began := time.Now(); im == nil || im.Parse() != nil; im = s.Lookup(pid, m) {
			if time.Sleep(time.Millisecond); time.Since(began) > 10*time.Second {
				t.Fatal("the file is not read")
			}
		}
		user := s.surveyorOf(im.source)
		user.credit = min(user.credit, time.Millisecond)
		user.at = time.Now() // it has not grown
		s.Walks(pid)
		s.surveying.credit = 0 // nothing is waited for
		im.Rule(m, base+bare+4)
		if begun := im.survey.making != nil; begun != (n == 0) {
			t.Fatalf("survey %d is made: %v", n, begun)
		} else if begun {
			<-im.survey.making.done
		}
		s.Forget(m.File)
	}
}

// TestSurveysAtOnce: a user has two surveys made at a time, and one more once a file has hung for long.
func TestSurveysAtOnce(t *testing.T) {
	var u surveyor
	now := time.Now()
	for _, age := range []time.Duration{0, surveyHangs / 2, 2 * surveyHangs} {
		job := newTask(func() surveyed { return surveyed{} }, nil)
		u.running = append(u.running, &surveyRunning{job, now.Add(-age)})
	}
	if u.settle(now); len(u.running) != surveysAtOnce || u.credit != 0 {
		t.Errorf("%d are running, and have cost %v", len(u.running), -u.credit)
	}
}

func address(t *testing.T, hex string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
