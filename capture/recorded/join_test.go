package recorded

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// recordJoined has perf record a program whose stacks fit into the largest copy, with copies of some size.
func recordJoined(t *testing.T, size int) string {
	t.Helper()
	testlane.Tools(t, "perf")
	program, data := programs.BuildFile(t, "testdata/joined.c"), filepath.Join(t.TempDir(), "perf.data")
	args := slices.Concat([]string{"record", "-q", "-B", "-N", "--call-graph", "dwarf," + strconv.Itoa(size), "-o", data},
		programs.Faults())
	if os.Geteuid() == 0 {
		args = append(args, "-m", "16M") // room for all of the samples
	}
	args = append(args, "--", program, programs.Times(120))
	if out, err := testlane.UserPerf(args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return data
}

// userStacks collects the user stacks that it is handed, and the order of the samples.
type userStacks struct {
	ips    map[uint64][]uint64 // by the sample's time, of complete ones
	joined map[uint64]bool
	times  []uint64
}

func newUserStacks() *userStacks {
	return &userStacks{ips: make(map[uint64][]uint64), joined: make(map[uint64]bool)}
}

func (u *userStacks) Write([]byte) error { return nil }

func (u *userStacks) WriteSample(w *perfdata.Walked) error {
	if w.Result == nil {
		return nil
	}
	u.times = append(u.times, w.Sample.Time)
	if w.Result.End == unwind.Root {
		u.ips[w.Sample.Time] = slices.Clone(w.Result.IPs)
		u.joined[w.Sample.Time] = w.Links.IsJoined()
	}
	return nil
}

// unwindCut unwinds a recording as if copies had size bytes, or as it is with 0.
func unwindCut(t *testing.T, path string, size uint64, c session.Config) *counts.Stats {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s *session.Session
	var sample perfring.Sample
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if s == nil {
			c.Format, c.Proc, c.MaxStack = f, "/proc", 2048
			s = session.New(c)
		}
		if size > 0 && rec.Type() == perfring.RecordSample {
			if err := f.Sample(rec, &sample); err != nil {
				return err
			}
			if rec, err = perfring.AppendCut(nil, rec, &sample, size); err != nil {
				return err
			}
		}
		return s.Record(rec)
	})
	if err == nil {
		err = s.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &s.Stats
}

func TestCutStacksAreJoined(t *testing.T) {
	data := recordJoined(t, perfring.MaxStackSize)
	whole, cut, joined := newUserStacks(), newUserStacks(), newUserStacks()
	unwindCut(t, data, 0, session.Config{Sink: whole})
	unwindCut(t, data, 16<<10, session.Config{Sink: cut})
	st := unwindCut(t, data, 16<<10, session.Config{Sink: joined, Join: true, JoinAfter: 100 * time.Millisecond})

	if !slices.Equal(joined.times, whole.times) {
		t.Error("the samples come in another order")
	}
	n := 0
	for time, ips := range joined.ips {
		want, known := whole.ips[time]
		if known && !slices.Equal(ips, want) {
			t.Errorf("%#x, want %#x", ips, want)
		}
		if joined.joined[time] {
			n++
		} else if _, ok := cut.ips[time]; !ok {
			t.Error("a stack that the copy cuts off is complete, and not joined")
		}
	}
	t.Logf("%d of %d complete, %d of them joined; %d without", len(joined.ips), len(joined.times), n,
		len(cut.ips))
	// How many depends on how often the program got a CPU: what is seen long before or after does not count.
	if n == 0 {
		t.Error("none is joined")
	}
	var ended, frames uint64
	for _, count := range st.Ended {
		ended += count
	}
	for _, count := range st.FramesBy {
		frames += count
	}
	if ended != st.User || frames != st.Frames || st.Joined() != uint64(n) ||
		(st.FramesBy[unwind.ByLinks] > 0) != (n > 0) || st.Complete() != uint64(len(joined.ips)) {
		t.Errorf("the counts do not add up: %+v", st)
	}
	soon := newUserStacks() // what is whole does not wait
	unwindCut(t, data, 16<<10,
		session.Config{Sink: soon, Join: true, JoinAfter: 100 * time.Millisecond, Unordered: true})
	if !maps.EqualFunc(soon.ips, joined.ips, slices.Equal) || !maps.Equal(soon.joined, joined.joined) {
		t.Error("without an order, the stacks are other ones")
	}
	if inOrder := slices.IsSorted(soon.times); inOrder && len(cut.ips) > 0 && len(cut.ips) < len(cut.times) {
		t.Error("samples that are whole wait for those that are not")
	}
	if slices.Sort(soon.times); !slices.Equal(soon.times, whole.times) {
		t.Error("without an order, there are other samples")
	}
	strict := unwindCut(t, data, 16<<10, session.Config{Sink: newUserStacks(), Strict: true})
	if strict.Joined() != 0 {
		t.Errorf("%d joined", strict.Joined())
	}
}

// What is converted on several cores is what one core makes of it, joined stacks and all.
func TestJoinedConvertIsTheSameOnEveryNumberOfCores(t *testing.T) {
	small := recordJoined(t, 16<<10)
	var first []byte
	for _, jobs := range []int{1, 3} {
		output := filepath.Join(t.TempDir(), "out.data")
		out, err := Convert(t.Context(), Options{Input: small, Output: output, MaxStack: 2048, Jobs: jobs})
		if err != nil {
			t.Fatal(err)
		}
		if out.Stats.Joined() == 0 {
			t.Errorf("none of %d stacks is joined", out.Stats.User)
		}
		content, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = content
		} else if !bytes.Equal(content, first) {
			t.Errorf("%d cores write something else", jobs)
		}
		marked := 0
		records, _ := readRecords(t, content)
		for _, rec := range records {
			if rec.Type() == perfring.RecordSample && perfdata.IsJoined(rec.Misc()) {
				marked++
			}
		}
		if uint64(marked) != out.Stats.Joined() {
			t.Errorf("%d samples are marked, %d are joined", marked, out.Stats.Joined())
		}
	}
}
