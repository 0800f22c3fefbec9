package capture

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
)

// goChains is a program whose goroutines each spend their time in the leaf of a chain of calls that does not
// change meanwhile. Before that, each prints the return addresses above its leaf, as Go's own traceback finds
// them.
const goChains = `package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"
)

var sink any
var total int
var end = time.Now().Add(1500 * time.Millisecond)

// over says whether the time is up and enough of it was CPU time.
func over() bool {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Now().After(end) && u.Utime.Nano()+u.Stime.Nano() > int64(800*time.Millisecond)
}

//go:noinline
func leaf(work func()) {
	var pcs [256]uintptr
	n := runtime.Callers(1, pcs[:])
	fmt.Println("chain", strings.Trim(fmt.Sprintf("%x", pcs[:n]), "[]"))
	for !over() {
		for range 100 {
			work()
		}
	}
}

type node struct{ depth int }

//go:noinline
func (n *node) down(work func()) {
	if n.depth == 0 {
		leaf(work)
		total++
		return
	}
	(&node{n.depth - 1}).up(work)
	total++
}

//go:noinline
func (n node) up(work func()) {
	func() {
		defer n.down(work)
		var room [64]byte
		total += len(room) + n.depth
	}()
	total++
}

type walker interface{ down(func()) }

//go:noinline
func generic[T walker](w T, work func()) { w.down(work); total++ }

type byte16 []int

func (b byte16) Len() int           { return len(b) }
func (b byte16) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b byte16) Less(i, j int) bool { return b[i] < b[j] }

func main() {
	keys := map[string]int{}
	for i := range 1000 {
		keys[fmt.Sprintf("key number %d", i)] = i
	}
	var from, to [1 << 16]byte
	zero, _ := os.Open("/dev/zero")
	work := []func(){
		func() { total += keys["key number 500"] },             // memhash, memequal
		func() { copy(to[:], from[:]) },                         // memmove
		func() { b := make([]byte, 4096); sink = b },            // malloc, memclr, GC
		func() { syscall.Getppid() },                            // a raw system call
		func() { zero.Read(to[:512]) },                          // a blocking one
		func() { b := byte16{5, 2, 8, 1, 9, 3}; sort.Sort(b) },  // an interface's methods
		func() { total += time.Now().Nanosecond() },             // the vDSO, on g0
		func() { total += strings.Index(string(to[:900]), "x") }, // AVX2 assembly
	}
	done := make(chan bool)
	for i, w := range work {
		go func() {
			generic(&node{4 * i}, w)
			done <- true
		}()
	}
	for range work {
		<-done
	}
}
`

// TestGoStacksAreWhatGoSees records that program. Every stack with a leaf in
// it must go on with a chain that the program printed, and stop at goexit.
func TestGoStacksAreWhatGoSees(t *testing.T) {
	for _, tool := range []string{"go", "perf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s", tool)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": goChains, "go.mod": "module program\n\ngo 1.22\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	program, data := filepath.Join(dir, "program"), filepath.Join(dir, "perf.data")
	build := exec.Command("go", "build", "-o", program)
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	record := exec.Command("perf", "record", "-q", "-B", "-N", "-e", "cpu-clock", "-F", "997",
		"--call-graph", "dwarf,32768", "-o", data, program)
	var errs bytes.Buffer
	record.Stderr = &errs
	out, err := record.Output()
	if err != nil {
		t.Skipf("perf record: %v\n%s", err, &errs)
	}
	var chains [][]uint64
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if words, ok := strings.CutPrefix(lines.Text(), "chain "); ok {
			var chain []uint64
			for w := range strings.FieldsSeq(words) {
				var pc uint64
				fmt.Sscanf(w, "%x", &pc)
				chain = append(chain, pc)
			}
			chains = append(chains, chain[1:]) // the first one is where leaf stood
		}
	}
	if len(chains) != 8 {
		t.Fatalf("%d chains:\n%s", len(chains), out)
	}

	functions := functionsOf(t, program)
	r, err := perfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := goChecker{t: t, chains: chains, functions: functions, seen: make([]int, len(chains)),
		ends: make(map[string]int)}
	var s *Session
	err = r.Ordered(func(rec perfring.Record, f *perfring.Format, _ uint64) error {
		if s == nil {
			s = NewSession(Config{Format: f, Sink: &c, Proc: "/proc", MaxStack: 2048})
			c.format = f.Unwound()
			c.stats = &s.Stats
		}
		return s.Record(rec)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.seen {
		if n == 0 {
			t.Errorf("no complete stack of chain %d", i)
		}
	}
	t.Logf("ended %v; by function of the last frame %v", s.Stats.Ended, c.ends)
}

type goFunction struct {
	addr, end uint64
	name      string
}

func functionsOf(t *testing.T, name string) (list []goFunction) {
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
			list = append(list, goFunction{s.Value, s.Value + s.Size, strings.TrimSuffix(s.Name, ".abi0")})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].addr < list[j].addr })
	return list
}

// A goChecker is the sink of the session: it looks at each unwound sample.
type goChecker struct {
	t         *testing.T
	format    perfring.Format
	stats     *Stats
	chains    [][]uint64
	functions []goFunction
	seen      []int
	ends      map[string]int
	roots     uint64
}

func (c *goChecker) name(pc uint64) string {
	i := sort.Search(len(c.functions), func(i int) bool { return c.functions[i].addr > pc })
	if i == 0 || pc >= c.functions[i-1].end {
		return ""
	}
	return c.functions[i-1].name
}

func (c *goChecker) WriteSample(w *perfdata.Walked) error { return w.Records(c.Write) }

func (c *goChecker) Write(rec []byte) error {
	if perfring.Record(rec).Type() != perfring.RecordSample {
		return nil
	}
	complete := c.stats.Ended[unwind.Root] > c.roots
	c.roots = c.stats.Ended[unwind.Root]
	var sm perfring.Sample
	if err := c.format.Sample(rec, &sm); err != nil {
		return err
	}
	var user []uint64
	in := false
	for i := range sm.Callchain.Len() {
		pc := sm.Callchain.At(i)
		if pc >= ^uint64(4095) {
			in = pc == ^uint64(511) // PERF_CONTEXT_USER
		} else if in {
			user = append(user, pc)
		}
	}
	if len(user) == 0 {
		return nil
	}
	last := c.name(user[len(user)-1] - 1)
	if complete {
		last += " (root)"
	}
	c.ends[last]++

	leaf := slices.IndexFunc(user, func(pc uint64) bool { return c.name(pc) == "main.leaf" })
	if leaf < 0 || strings.HasPrefix(c.name(user[0]), "fmt.") {
		return nil
	}
	// Go's traceback leaves out the wrappers that the compiler makes.
	above := slices.DeleteFunc(slices.Clone(user[leaf+1:]), func(pc uint64) bool {
		return strings.Contains(c.name(pc), "wrap")
	})
	i := slices.IndexFunc(c.chains, func(chain []uint64) bool { return slices.Equal(chain, above) })
	switch {
	case i >= 0 && complete:
		c.seen[i]++
	case i >= 0:
		c.t.Errorf("the whole chain, but not complete: %s", c.names(user))
	case complete:
		c.t.Errorf("a chain that the program does not have: %s", c.names(user))
	default:
		// Cut short: what is there must be the beginning of a chain.
		if !slices.ContainsFunc(c.chains, func(chain []uint64) bool {
			return len(above) < len(chain) && slices.Equal(chain[:len(above)], above)
		}) {
			c.t.Errorf("no beginning of a chain: %s", c.names(user))
		}
	}
	return nil
}

func (c *goChecker) names(pcs []uint64) string {
	var b strings.Builder
	for _, pc := range pcs {
		fmt.Fprintf(&b, "\n\t%#x %s", pc, c.name(pc))
	}
	return b.String()
}
