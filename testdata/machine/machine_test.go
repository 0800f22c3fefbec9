package machine

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var (
	seeds = flag.Int("seeds", 200, "how many machines are simulated")
	from  = flag.Uint64("from", 1, "the first of their seeds")
	keep  = flag.Bool("whole", false, "do not look for the shortest plan that fails")
	plan  = flag.String("plan", "", "run this plan, by TestPlans")
)

// simulate runs a plan in a bubble.
func simulate(t *testing.T, p Plan, files []*file) (res *Result) {
	t.Helper()
	folder := t.TempDir()
	synctest.Test(t, func(*testing.T) { res = Run(p, files, folder) })
	_ = os.RemoveAll(folder)
	return res
}

// TestSimulate simulates machines. Of one that fails it says the shortest plan that still does.
func TestSimulate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // there is little to keep, and much to forget
	began, spent := time.Now(), cpuTime()
	var mu sync.Mutex
	all := Result{Reached: make(map[string]int)}
	failed := 0
	t.Run("seeds", func(t *testing.T) {
		workers := uint64(runtime.GOMAXPROCS(0))
		for w := range workers {
			t.Run(strconv.FormatUint(w, 10), func(t *testing.T) {
				t.Parallel()
				files, err := Files(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				for seed := *from + w; seed < *from+uint64(*seeds); seed += workers {
					p := Draw(seed)
					res := simulate(t, p, files)
					mu.Lock()
					all.add(res)
					if len(res.Problems) > 0 {
						failed++
					}
					enough := failed >= mostFailures
					mu.Unlock()
					if len(res.Problems) > 0 {
						fail(t, p, res, files)
					}
					if enough {
						return
					}
				}
			})
		}
	})
	each := (cpuTime() - spent) / time.Duration(*seeds)
	t.Logf("%d machines in %v, %v of CPU time each: %d samples, ended %v, %d joined, %d of them wrong, %d guessed wrong, "+
		"%d doubted; reached %v", *seeds, time.Since(began).Round(time.Millisecond), each.Round(100*time.Microsecond),
		all.Samples, all.Ended, all.Joined, all.Wrong, all.Guessed, all.Doubted, all.Reached)
	if *seeds < 200 || failed > 0 {
		return
	}
	for _, fault := range Faults {
		if all.Reached[fault] == 0 {
			t.Errorf("%s has not happened", fault)
		}
	}
}

// cpuTime is what this process has taken so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mostFailures is how many plans that fail are made shorter: that takes its time.
const mostFailures = 3

// fail tells of a plan that fails.
func fail(t *testing.T, p Plan, res *Result, files []*file) {
	if *keep {
		t.Errorf("%v\n\t%s", p, strings.Join(res.Problems, "\n\t"))
		return
	}
	short := Shortest(p, func(q Plan) bool { return len(simulate(t, q, files).Problems) > 0 })
	t.Errorf("%v\n\t%s\nshortest: %v\n\t%s", p, strings.Join(res.Problems, "\n\t"), short,
		strings.Join(simulate(t, short, files).Problems, "\n\t"))
}

// TestSameSeed: the same seed gives the same bytes. Goroutines that begin at the same time run in the same order only
// if one of them runs at a time.
func TestSameSeed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	files, err := Files(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		p := Draw(seed)
		if a, b := simulate(t, p, files), simulate(t, p, files); a.Digest != b.Digest {
			t.Errorf("%v: %s and %s", p, a.Digest, b.Digest)
		}
	}
}

// TestPlans reads what String writes, and runs the plans that have failed once.
func TestPlans(t *testing.T) {
	for seed := range uint64(100) {
		p := Draw(seed)
		q, err := Parse(p.String())
		if err != nil || q.String() != p.String() {
			t.Errorf("%v is read as %v, %v", p, q, err)
		}
	}
	if _, err := Parse("seed=x"); err == nil {
		t.Error("a seed that is no number")
	}
	files, err := Files(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join("testdata", "plans.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(kept) + *plan) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		p, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if res := simulate(t, p, files); len(res.Problems) > 0 {
			t.Errorf("%v\n\t%s", p, strings.Join(res.Problems, "\n\t"))
		}
	}
}
