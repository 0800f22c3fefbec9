package session

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

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
)

// goChains is a program whose goroutines each are in the leaf of a chain of calls that does not change meanwhile.
// Before that, each prints the return addresses above its leaf, as Go's own traceback finds them. Then it works a
// known number of times, with page faults in the leaf and in what that calls.
const goChains = `package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const times = 20

var sink any
var total int

// fresh returns so many pages that nobody has touched.
func fresh(pages int) []byte {
	b, err := syscall.Mmap(-1, 0, pages<<12, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic(err)
	}
	syscall.Madvise(b, 15) // MADV_NOHUGEPAGE
	return b
}

//go:noinline
func leaf(work func(page []byte)) {
	var pcs [256]uintptr
	n := runtime.Callers(1, pcs[:])
	own, given := fresh(times), fresh(times)
	fmt.Println("chain", strings.Trim(fmt.Sprintf("%x", pcs[:n]), "[]"))
	for i := range times {
		own[i<<12] = 1
		work(given[i<<12:][:1<<12])
	}
}

type node struct{ depth int }

//go:noinline
func (n *node) down(work func([]byte)) {
	if n.depth == 0 {
		leaf(work)
		total++
		return
	}
	(&node{n.depth - 1}).up(work)
	total++
}

//go:noinline
func (n node) up(work func([]byte)) {
	func() {
		defer n.down(work)
		var room [64]byte
		total += len(room) + n.depth
	}()
	total++
}

type walker interface{ down(func([]byte)) }

//go:noinline
func generic[T walker](w T, work func([]byte)) { w.down(work); total++ }

type bytes []byte

func (b bytes) Len() int           { return 6 }
func (b bytes) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b bytes) Less(i, j int) bool { return b[i] < b[j] }

func main() {
	keys := map[string]int{}
	for i := range 1000 {
		keys[fmt.Sprintf("key number %d", i)] = i
	}
	var from [1 << 12]byte
	zero, _ := os.Open("/dev/zero")
	work := []func(page []byte){
		func(page []byte) { total += keys[unsafe.String(&page[0], 100)] },   // memhash, memequal
		func(page []byte) { copy(page, from[:]) },                           // memmove
		func(page []byte) { b := make([]byte, 1<<16); sink = b },            // malloc, memclr, GC
		func(page []byte) { syscall.Getppid() },                             // a raw system call
		func(page []byte) { zero.Read(page) },                               // a blocking one
		func(page []byte) { sort.Sort(bytes(page)) },                        // an interface's methods
		func(page []byte) { total += time.Now().Nanosecond() },              // the vDSO, on g0
		func(page []byte) { total += strings.Index(unsafe.String(&page[0], 900), "x") }, // AVX2 assembly
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
	events := "page-faults"
	if _, err := os.Stat("/sys/kernel/tracing/events/syscalls/sys_enter_getppid"); err == nil && os.Geteuid() == 0 {
		events += ",syscalls:sys_enter_getppid"
	}
	record := exec.Command("perf", "record", "-q", "-B", "-N", "-e", events, "-c", "1", "-m", "16M",
		"--call-graph", "dwarf,16384", "-o", data, program)
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
		ends: make(map[string]int), leaves: make(map[string]int)}
	var s *Session
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if s == nil {
			s = New(Config{Format: f, Sink: &c, Proc: "/proc", MaxStack: 2048})
			c.format = f.Unwound()
			c.stats = &s.Stats
		}
		return s.Record(rec)
	})
	if err != nil {
		t.Fatal(err)
	}
	const times = 20 // of goChains
	for i, n := range c.seen {
		if n < times {
			t.Errorf("%d complete stacks of chain %d", n, i)
		}
	}
	for _, names := range [][]string{{"main.leaf"}, {"runtime.memmove"}, {"main.(*bytes).", "main.bytes."}} {
		n := 0
		for leaf, count := range c.leaves {
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(leaf, name) }) {
				n += count
			}
		}
		if n < times {
			t.Errorf("%d stacks of %d or more in %s, but %v", n, times, names[0], c.leaves)
		}
	}
	t.Logf("ended %v; by function of the last frame %v, of the first %v", s.Stats.Ended, c.ends, c.leaves)
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
	format    perfring.SampleFormat
	stats     *counts.Stats
	chains    [][]uint64
	functions []goFunction
	seen      []int
	ends      map[string]int
	leaves    map[string]int // of complete ones, by function
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
		c.leaves[c.name(user[0])]++
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
