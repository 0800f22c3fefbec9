package perfring

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A faulter is this binary as a workload that does what is sampled as often as it is told to, so that a test knows
// how many samples there are. It has a thread for each CPU that is online, four at least.
type faulter struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	tids []uint32
}

// startFaulter starts a faulter until the test ends.
func startFaulter(t *testing.T) *faulter {
	t.Helper()
	f := &faulter{Cmd: exec.Command("/proc/self/exe")}
	f.Env = append(os.Environ(), "PERFRING_WORK=fault")
	out, err := f.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if f.in, err = f.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.in.Close()
		_ = f.Process.Kill()
		_ = f.Wait()
	})
	f.out = bufio.NewReader(out)
	for _, word := range strings.Fields(f.line(t)) {
		tid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		f.tids = append(f.tids, uint32(tid))
	}
	return f
}

func (f *faulter) line(t *testing.T) string {
	t.Helper()
	line, err := f.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the workload says %q, %v", line, err)
	}
	return line
}

// touch has each thread take so many page faults in touchPage, and as many system calls of the rare kind, and
// returns when that is done.
func (f *faulter) touch(t *testing.T, times int) {
	t.Helper()
	if _, err := fmt.Fprintln(f.in, times); err != nil {
		t.Fatal(err)
	}
	f.line(t)
}

// end ends the workload, and waits for that.
func (f *faulter) end() {
	_ = f.in.Close()
	_ = f.Wait()
}

// fault is the workload's side.
func fault() {
	cpus, err := hostSystem.onlineCPUs()
	if err != nil {
		panic(err)
	}
	var tids []string
	var threads []chan int
	told, done := make(chan int), make(chan bool)
	for i := range max(4, len(cpus)) {
		work := make(chan int)
		threads = append(threads, work)
		go onCPU(cpus[i%len(cpus)], func() {
			told <- unix.Gettid()
			for times := range work {
				touch(times)
				done <- true
			}
		})
		tids = append(tids, strconv.Itoa(<-told))
	}
	fmt.Println(strings.Join(tids, " "))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("done") {
		times, _ := strconv.Atoi(lines.Text())
		for _, work := range threads {
			work <- times
		}
		for range threads {
			<-done
		}
	}
}

// touch writes to so many pages that nobody has touched, and makes as many system calls of the rare kind.
func touch(times int) {
	size := os.Getpagesize()
	pages, err := unix.Mmap(-1, 0, (times+1)*size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	_ = unix.Madvise(pages, unix.MADV_NOHUGEPAGE) // of which one fault would make many there
	for i := range times {
		touchPage(&pages[i*size])
		var interval unix.Timespec
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_RR_GET_INTERVAL, 0, uintptr(unsafe.Pointer(&interval)), 0)
	}
	_ = unix.Munmap(pages)
}

//go:noinline
func touchPage(page *byte) { *page = 1 }

// isTouch reports whether a sample is of a page fault in touchPage, in this process or another one of this binary.
func isTouch(s *Sample) bool {
	f := runtime.FuncForPC(uintptr(s.IP))
	return f != nil && strings.HasSuffix(f.Name(), ".touchPage")
}

// rare are two events that only a faulter causes: so of all CPUs, too, it is known how many samples there are.
func rare(t *testing.T) []Event {
	t.Helper()
	events, err := ParseEvents("syscalls:sys_enter_sched_rr_get_interval,syscalls:sys_exit_sched_rr_get_interval")
	if err != nil {
		t.Skipf("needs tracefs: %v", err)
	}
	return events
}

// timedOut reports whether a wait lasted until its timer ended it.
func timedOut(t *testing.T, s *Source, wait func(time.Duration) error, timeout time.Duration) bool {
	t.Helper()
	if !s.poller.armed {
		s.poller.until = 0
	}
	if err := wait(timeout); err != nil {
		t.Fatal(err)
	}
	return s.poller.until != 0 && !s.poller.armed
}

// take ends the recording, and takes all of its records.
func (rec *recording) take(t *testing.T, s *Source) {
	t.Helper()
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(rec.record); err != nil {
		t.Fatal(err)
	}
	rec.check(t)
}

// touched expects as many samples of touchPage of each thread.
func (rec *recording) touched(t *testing.T, tids []uint32, times int) {
	t.Helper()
	for _, tid := range tids {
		if n := rec.touches[tid]; n != times*faultsOfTouch {
			t.Errorf("%d samples of %d page faults of thread %d", n, times, tid)
		}
	}
	if len(rec.touches) != len(tids) || !slices.Contains(tids, slices.Max(tids)) {
		t.Errorf("samples of %d threads, of %d", len(rec.touches), len(tids))
	}
}
