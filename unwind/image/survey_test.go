package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unspool/testdata/lane"
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
	run(t, "", compiler, "-shared", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,--build-id=none", "-o", path, source)
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

// mapHole maps the library at holeBase in process 1, and waits until its tables are read.
func mapHole(t *testing.T, s *Store, path string) (m *vmas.Mapping, im *Image) {
	t.Helper()
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	table.Mmap(1, vmas.Map{Addr: holeBase, Len: 4 << 20, Prot: vmas.ProtExec, Name: []byte(path),
		ID: identity(t, path)})
	m = table.Space(1).Find(holeBase)
	s.Open(1, m)
	s.Walks(1)
	lane.Eventually(t, "the tables", func() bool {
		im = s.Lookup(1, m)
		return im != nil && im.Parse() == nil
	})
	return m, im
}

const holeBase = 0x400000

// surveyedStore is a store for a recording whose rings have no room, and what it reports.
func surveyedStore(hurried bool) (s *Store, failed *[]string) {
	failed = new([]string)
	return New(Config{Proc: "/proc", Hurried: hurried, Hooks: Hooks{
		Failed: func(path string, err error) { *failed = append(*failed, err.Error()) },
	}}), failed
}

// TestSurveyIsNotWaitedFor asks for a rule that needs a survey, which cannot be made, as the file hangs,
// while the rings have no room: no question waits for long, other rules are found, and this one once the file
// answers.
func TestSurveyIsNotWaitedFor(t *testing.T) {
	dir, path, bare, covered := buildHole(t)
	server := fusetest.Show(t, dir)
	path = filepath.Join(server.Dir, filepath.Base(path))
	s, failed := surveyedStore(true)
	m, im := mapHole(t, s, path)
	*failed = nil // a busy machine may have read the tables late
	ask := func(at uint64) rule.Rule { return im.Rule(m, holeBase+at) }
	server.Be(t, fusetest.HangRead)
	waits := 0
	s.files.waits = func() { waits++ }
	for range 100 {
		if r := ask(bare + 4); r != rule.Unreadable {
			t.Fatalf("%v before the survey", r)
		}
	}
	if waits > mostTurns {
		t.Errorf("100 questions waited %d times", waits)
	}
	if r := ask(covered + 2); r == rule.Unreadable || r == rule.Uncovered {
		t.Errorf("%v of other code meanwhile", r)
	}
	if want := "code without unwind tables in " + path + ": not read within"; len(*failed) != 1 ||
		!strings.Contains((*failed)[0], want) {
		t.Errorf("%q", *failed)
	}
	server.Be(t, fusetest.Answer)
	if r := untilReadable(func() rule.Rule { return ask(bare + 4) }); r != rule.GuessSP.With(2, 0) {
		t.Errorf("%v after the survey", r)
	}
	if s.surveyorOf(im.source).credit.Has() >= mostSurveys {
		t.Error("the survey costs nothing")
	}
}

// untilReadable asks until there is an answer.
func untilReadable(ask func() rule.Rule) (r rule.Rule) {
	lane.Soon(func() bool { r = ask(); return r != rule.Unreadable })
	return r
}

// TestSurveysOfAUser: whoever has used up the time for surveys gets none, which is told once, and nobody else
// is hurt. A conversion is not bounded.
func TestSurveysOfAUser(t *testing.T) {
	_, path, bare, _ := buildHole(t)
	for _, hurried := range []bool{true, false} {
		s, failed := surveyedStore(hurried)
		m, im := mapHole(t, s, path)
		*failed = nil
		ask := func() rule.Rule { return im.Rule(m, holeBase+bare+4) }
		own, other := s.surveyorOf(im.source), s.surveyorOf(&source{file: &descriptor{uid: 12345}})
		own.credit.Spend(time.Hour)
		if r := ask(); hurried != (r == rule.Unreadable) {
			t.Errorf("hurried %v: %v", hurried, r)
		}
		ask()
		if told := len(*failed); told > 1 || hurried != (told == 1) {
			t.Errorf("hurried %v: %q", hurried, *failed)
		}
		if other.credit.Has() != mostSurveys {
			t.Errorf("another user has %v", other.credit.Has())
		}
		own.credit.Add(time.Hour)
		if r := untilReadable(ask); r != rule.GuessSP.With(2, 0) {
			t.Errorf("with credit: %v", r)
		}
	}
}

// TestSurveysThatAreGivenUp has a library mapped again and again, and unmapped once its survey is made,
// before that is used: it costs its user what it takes, and there are no more when that is used up.
func TestSurveysThatAreGivenUp(t *testing.T) {
	_, path, bare, _ := buildHole(t)
	s, _ := surveyedStore(true)
	for n := range 10 {
		m, im := mapHole(t, s, path)
		user := s.surveyorOf(im.source)
		user.credit.Spend(max(0, user.credit.Has()-time.Millisecond))
		s.surveying.credit.Spend(time.Hour) // nothing is waited for
		im.Rule(m, holeBase+bare+4)
		if begun := im.survey.making != nil; begun != (n == 0) {
			t.Fatalf("survey %d is made: %v", n, begun)
		} else if begun {
			<-im.survey.making.done
			im.survey.making.result.cpu = time.Hour // more than the credit grows on a busy machine
		}
		s.Forget(m.File)
	}
}

// TestSurveysAtOnce: a user has two surveys made at a time, and more once files have hung for long. What they
// take is charged when they are done.
func TestSurveysAtOnce(t *testing.T) {
	_, path, bare, _ := buildHole(t)
	s, failed := surveyedStore(true)
	m, im := mapHole(t, s, path)
	*failed = nil
	user := s.surveyorOf(im.source)
	for range surveysAtOnce {
		hangs := newTask(func() surveyed { return surveyed{} }, nil)
		user.running = append(user.running, &surveyRunning{hangs, time.Now().Add(time.Hour)})
	}
	ask := func() rule.Rule { return im.Rule(m, holeBase+bare+4) }
	if r := ask(); r != rule.Unreadable || im.survey.making != nil || len(*failed) > 0 {
		t.Errorf("%v beside two others, %q", r, *failed)
	}
	user.running[0].began = time.Now().Add(-2 * surveyHangs)
	if r := untilReadable(ask); r != rule.GuessSP.With(2, 0) {
		t.Errorf("%v beside one and one that hangs", r)
	}
	if len(user.running) != 1 {
		t.Errorf("%d are running", len(user.running))
	}
}

// TestSurveyWithoutRoom has no memory left for the tables that a survey reads again: that is told once, and
// the code is not taken for code of which nothing can be known.
func TestSurveyWithoutRoom(t *testing.T) {
	_, path, bare, _ := buildHole(t)
	s, failed := surveyedStore(false)
	m, im := mapHole(t, s, path)
	s.tables.left.Store(0)
	for range 2 {
		if r := im.Rule(m, holeBase+bare+4); r != rule.Unreadable {
			t.Errorf("%v", r)
		}
	}
	if len(*failed) != 1 || !strings.Contains((*failed)[0], "no room for") {
		t.Errorf("%q", *failed)
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
