package firefox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// reader is Firefox Profiler itself, without its pages: it loads a file, brings it up to its own version of
// the format, and answers questions about it.
type reader struct {
	t       testing.TB
	program string
	folder  string
}

// open loads a file into the reader. Without the reader the test is skipped.
func open(t testing.TB, file []byte) *reader {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing")
	}
	program, err := filepath.Abs(
		"../../../dist/npm/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Skip("@firefox-devtools/profiler-cli is missing (npm)")
	}
	folder, err := os.MkdirTemp("", "firefox") // a short path: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "profile.json.gz")
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
	r := &reader{t, program, folder}
	r.serve(path)
	return r
}

// loadTime is how long a reader may take to load a file before another one is started.
const loadTime = time.Minute

// serve starts the process that holds the file, which ends with the test, and waits until it has loaded it.
// The reader's own way to start it gives up after half a second, however busy the machine is.
func (r *reader) serve(path string) {
	r.t.Helper()
	var err error
	for range 3 {
		if err = r.tryToServe(path); err == nil {
			return
		}
		r.t.Log(err)
	}
	r.t.Fatal("no reader answers")
}

func (r *reader) tryToServe(path string) error {
	var said bytes.Buffer
	c := r.command("--daemon", path, "--session", session)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	end := func() {
		c.Process.Kill()
		<-ended
	}
	for late := time.Now().Add(loadTime); ; time.Sleep(50 * time.Millisecond) {
		out, err := []byte("no socket"), error(nil)
		// A session that is asked for before all its files are there is taken for a dead one and removed.
		if r.has(session+".sock") && r.has(session+".json") {
			if out, err = r.command("status", "--session", session).CombinedOutput(); err == nil {
				r.t.Cleanup(end)
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the reader ended: %v\n%s", err, &said) //nolint:errorlint // err may be nil
		default:
		}
		if time.Now().After(late) {
			end()
			return fmt.Errorf("the reader does not answer: %s\n%s", out, &said)
		}
	}
}

func (r *reader) has(name string) bool {
	_, err := os.Stat(filepath.Join(r.folder, name))
	return err == nil
}

const session = "test"

func (r *reader) command(args ...string) *exec.Cmd {
	c := exec.Command("node", append([]string{r.program}, args...)...)
	c.Env = append(os.Environ(), "PROFILER_CLI_SESSION_DIR="+r.folder)
	return c
}

func (r *reader) run(args ...string) []byte {
	r.t.Helper()
	c := r.command(append(args, "--session", session)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		r.t.Fatalf("profiler-cli %v: %v\n%s%s", args, err, out, &stderr)
	}
	return out
}

func (r *reader) ask(answer any, args ...string) {
	r.t.Helper()
	out := r.run(append(args, "--json")...)
	if err := json.Unmarshal(out, answer); err != nil {
		r.t.Fatalf("profiler-cli %v: %v\n%.2000s", args, err, out)
	}
}

// readThread is a thread as the reader lists it.
type readThread struct {
	ThreadHandle, Name, ProcessName string
	PID, TID                        any
	CPUMs                           float64
	MarkerCount                     int
}

func (r *reader) threads() []readThread {
	r.t.Helper()
	var list struct{ Threads []readThread }
	r.ask(&list, "thread", "list", "--limit", "0")
	return list.Threads
}

// times are the numbers of samples in which a function is the innermost, and of those in which it is at all.
type times struct{ self, total int }

// functions returns the functions of a thread by name.
func (r *reader) functions(thread string) map[string]times {
	r.t.Helper()
	var list struct {
		WeightType string
		Functions  []struct {
			Name                      string
			SelfSamples, TotalSamples int
		}
	}
	r.ask(&list, "thread", "functions", "--thread", thread, "--limit", "0", "--include-idle")
	if list.WeightType != "samples" {
		r.t.Errorf("weights are %q", list.WeightType)
	}
	all := make(map[string]times)
	for _, f := range list.Functions {
		n := all[f.Name]
		all[f.Name] = times{n.self + f.SelfSamples, n.total + f.TotalSamples}
	}
	return all
}

// functions returns the functions of a thread of the profile by name. A function that calls another one of
// the same name counts twice, as it does in the reader.
func functions(p *profile.Profile, thread int32) map[string]times {
	all := make(map[string]times)
	for _, s := range p.Samples {
		if s.Thread != thread {
			continue
		}
		type place struct {
			name, file string
			image      int32
		}
		seen := make(map[place]bool)
		for node := s.Node; node > 0; node = p.Nodes[node].Parent {
			f := &p.Frames[p.Nodes[node].Frame]
			n := all[f.Name]
			if node == s.Node {
				n.self += int(s.Count)
			}
			if at := (place{f.Name, f.File, f.Image}); !seen[at] {
				seen[at] = true
				n.total += int(s.Count)
			}
			all[f.Name] = n
		}
	}
	return all
}

// program touches a page in each call of inner, in each of its two threads.
const program = `
#include <pthread.h>
#define NI __attribute__((noinline))
#define AI static inline __attribute__((always_inline))
static volatile char pages[2][200][4096] __attribute__((aligned(4096)));
static __thread int thread, page;
volatile unsigned long sink;
AI void inner(int n) { for (int i = 0; i < n; i++) pages[thread][page++][0] = i; }
AI void middle(int n) { inner(n); sink++; }
NI void heavy(void) { middle(3); sink++; }
NI void light(void) { inner(1); sink++; }
NI void recurse(int n) { if (n) recurse(n - 1); else heavy(); sink++; }
void *worker(void *unused) {
	pthread_setname_np(pthread_self(), "worker");
	thread = 1;
	for (int i = 0; i < 40; i++) { recurse(5); light(); }
	return unused;
}
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, worker, 0);
	for (int i = 0; i < 20; i++) { heavy(); light(); }
	pthread_join(t, 0);
	for (int i = 0; i < 20; i++) light();
}
`

// record records the program with perf and loads the recording.
func record(t *testing.T, lives *Lives) (*profile.Profile, *profile.Timeline) {
	t.Helper()
	for _, tool := range []string{"gcc", "perf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	dir := t.TempDir()
	src, bin, data := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog"), filepath.Join(dir, "perf.data")
	if err := os.WriteFile(src, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-D_GNU_SOURCE", "-O2", "-g", "-fno-omit-frame-pointer",
		"-fno-optimize-sibling-calls", "-pthread", "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if out, err := lane.UserPerf(slices.Concat([]string{"record", "-q", "-B", "-N", "-g", "-o", data},
		programs.Faults(), []string{"--", bin})...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "perf_event_paranoid") {
			t.Skipf("perf may not record here: %s", out)
		}
		t.Fatalf("perf: %v\n%s", err, out)
	}
	timeline, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { timeline.Close() })
	r, err := perfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}),
		profile.Options{Lines: true, CPUs: true, Timeline: timeline, Watcher: lives})
	if err != nil {
		t.Fatal(err)
	}
	return p, timeline
}

func TestTheReaderCountsWhatTheProfileHas(t *testing.T) {
	lives := NewLives()
	p, timeline := record(t, lives)
	var file bytes.Buffer
	if err := Write(&file, p, timeline, Options{Name: "recording", Lives: lives}); err != nil {
		t.Fatal(err)
	}
	for _, th := range parse(t, file.Bytes()).Threads {
		if th.Name == "worker" && (th.UnregisterTime == nil || *th.UnregisterTime < th.RegisterTime) {
			t.Errorf("%s lives %s", th.Name, span(th.RegisterTime, th.UnregisterTime))
		}
	}
	r := open(t, file.Bytes())
	byHandle := make(map[string]readThread)
	for _, th := range r.threads() {
		byHandle[th.ThreadHandle] = th
	}
	if len(byHandle) != len(p.Threads) {
		t.Errorf("%d threads, the profile has %d", len(byHandle), len(p.Threads))
	}
	for i, th := range p.Threads {
		handle := fmt.Sprintf("t-%d", i)
		if got := byHandle[handle]; got.Name != th.Comm || fmt.Sprint(got.PID) != fmt.Sprint(th.PID) ||
			!strings.HasPrefix(fmt.Sprint(got.TID), fmt.Sprint(th.TID)) {
			t.Errorf("thread %s is %+v, want %+v", handle, got, th)
		}
		want, got := functions(p, int32(i)), r.functions(handle)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			// An address without a line may count for another function of its name here.
			if got[name].self != want[name].self || ours(name) && got[name] != want[name] {
				t.Errorf("%s: %s has %d samples (%d itself), want %d (%d)", handle, name, got[name].total, got[name].self,
					want[name].total, want[name].self)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d functions, want %d", handle, len(got), len(want))
		}
		if th.Comm == "worker" {
			if want["inner"].self != 160 {
				t.Errorf("%d samples in an inlined function", want["inner"].self)
			}
			tree := string(r.run("thread", "samples-top-down", "--thread", handle))
			if !strings.Contains(tree, "prog!middle (inl)") {
				t.Errorf("call tree:\n%s", tree)
			}
		}
	}
}

// ours reports whether a function belongs to the program.
func ours(name string) bool {
	return slices.Contains([]string{"inner", "middle", "heavy", "light", "recurse", "worker", "main"},
		name)
}

func TestTheReaderTakesWhatIsUnusual(t *testing.T) {
	s := newSynthetic(t)
	s.Events = append(s.Events, profile.Event{Name: "page-faults"})
	hostile := "\"},{</script>\x00\xff"
	s.Images[0].Name = hostile
	f := s.function(hostile, 0x10)
	th := s.thread(7, 7, hostile)
	s.thread(8, 8, "asleep")
	s.sample(second, th, s.Stack(f), 0)
	s.sample(2*second, th, 0, 0)
	s.sample(3*second, th, s.Stack(f), 0)
	s.sample(3*second, th, s.Stack(f), 1)
	s.Losses = []profile.Loss{{Time: 2 * second, Count: 12, CPU: 3}, {Time: 3 * second, CPU: 0}}
	s.Problems = []string{hostile}
	for i := range 200 {
		th := s.thread(uint32(100+i/100*100), uint32(100+i), "pool")
		s.sample(second+uint64(i), th, s.Stack(f), 0)
	}
	r := open(t, s.written(Options{Name: hostile}).raw)

	threads := r.threads()
	if len(threads) != 203 {
		t.Errorf("%d threads", len(threads))
	}
	named := make(map[string]readThread)
	for _, th := range threads {
		named[th.Name] = th
	}
	clean := strings.ToValidUTF8(hostile, "\ufffd")
	if got := r.functions(named[clean].ThreadHandle); got[clean] != (times{2, 2}) {
		t.Errorf("functions %v", got)
	}
	if got := r.functions(named["asleep"].ThreadHandle); len(got) != 0 {
		t.Errorf("functions of a thread without samples: %v", got)
	}
	for thread, want := range map[string][]string{clean: {"page-faults true"},
		"[gaps]": {"Lost samples false", "Throttled false"}} {
		var list struct {
			FlatMarkers []struct {
				Name     string
				HasStack bool
			}
		}
		r.ask(&list, "thread", "markers", "--list", "--thread", named[thread].ThreadHandle)
		var got []string
		for _, m := range list.FlatMarkers {
			got = append(got, fmt.Sprint(m.Name, " ", m.HasStack))
		}
		if !slices.Equal(got, want) {
			t.Errorf("markers of %s: %q, want %q", thread, got, want)
		}
	}
	if about := string(r.run("profile", "meta")); !strings.Contains(about, clean) {
		t.Errorf("about the profile:\n%s", about)
	}
}
