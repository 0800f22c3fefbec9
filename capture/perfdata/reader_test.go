package perfdata

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// stack is what perf script -F pid,time,event,ip,sym prints about a sample.
type stack struct {
	pid   uint32
	us    uint64
	event string
	chain string
}

// perfStacks returns the samples of a recording as perf script prints them.
func perfStacks(t testing.TB, path string) (stacks []stack) {
	t.Helper()
	// Reading the names of the kernel's functions, which are not asked for, would take longer than the rest.
	cmd := exec.Command("perf", "script", "-F", "pid,time,event,ip", "--no-inline", "--kallsyms", os.DevNull,
		"-i", path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	head := regexp.MustCompile(`^\s*(-?\d+)\s+(\d+)\.(\d{6}):\s*(\S.*?):?\s*([0-9a-f]+)?\s*$`)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if m := head.FindStringSubmatch(line); m != nil && strings.Contains(line, ":") {
			var s stack
			var pid int32 // -1 of a thread whose process is gone
			var sec, us uint64
			fmt.Sscanf(m[1]+" "+m[2]+" "+m[3], "%d %d %d", &pid, &sec, &us)
			s.pid = uint32(pid)
			s.us, s.event = sec*1e6+us, strings.TrimSuffix(strings.TrimSpace(m[4]), ":")
			if m[5] != "" {
				s.chain = address(t, m[5])
			}
			stacks = append(stacks, s)
		} else if f := strings.Fields(line); len(f) > 0 {
			last := &stacks[len(stacks)-1]
			last.chain = strings.TrimSpace(last.chain + " " + address(t, f[0]))
		}
	}
	return stacks
}

// address returns the part of an address that can be compared with perf's: all of a kernel address, and of
// others only the offset in the page, as perf prints their offset in the file.
func address(t testing.TB, s string) string {
	var ip uint64
	if _, err := fmt.Sscanf(s, "%x", &ip); err != nil {
		t.Fatalf("perf script printed the address %q", s)
	}
	if ip < 1<<63 {
		ip &= 0xfff
	}
	return fmt.Sprintf("%x", ip)
}

// ownStacks returns the same by way of Reader.
func ownStacks(t testing.TB, path string) (stacks []stack) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s perfring.Sample
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, time uint64) error {
		if rec.Type() != perfring.RecordSample {
			return nil
		}
		if err := f.Sample(rec, &s); err != nil {
			return err
		}
		at := stack{pid: s.PID, us: time / 1000, event: r.Events()[r.Event(s.ID)].Name}
		var chain []string
		for i := range s.Callchain.Len() {
			if ip := s.Callchain.At(i); ip < 1<<64-4096 {
				chain = append(chain, address(t, fmt.Sprintf("%x", ip)))
			}
		}
		if f.SampleType()&unix.PERF_SAMPLE_CALLCHAIN == 0 {
			chain = []string{address(t, fmt.Sprintf("%x", s.IP))}
		}
		at.chain = strings.Join(chain, " ")
		stacks = append(stacks, at)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return stacks
}

// ownProcesses returns the processes of the command that recordWithPerf records.
func ownProcesses(t testing.TB, path string) map[uint32]bool {
	t.Helper()
	out, err := exec.Command("perf", "script", "-F", "comm,pid", "-G", "--kallsyms", os.DevNull,
		"-i", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	pids := make(map[uint32]bool)
	for line := range strings.Lines(string(out)) {
		var comm string
		var pid uint32
		if n, _ := fmt.Sscanf(line, "%s %d", &comm, &pid); n == 2 && (comm == "sh" || comm == "ls") {
			pids[pid] = true
		}
	}
	return pids
}

func byTimeAndStack(a, b stack) int {
	return cmp.Or(cmp.Compare(a.us, b.us), cmp.Compare(a.pid, b.pid), cmp.Compare(a.event, b.event),
		cmp.Compare(a.chain, b.chain))
}

func TestReadsWhatPerfRecords(t *testing.T) {
	for _, args := range []string{
		"-g", "-g -a -e sched:sched_process_exit -c 1", "-g -z", "-g --compression-level=22", "-g -", "-g -z -",
		"-g -e page-faults,minor-faults",
		"-g -e page-faults,minor-faults -",
		"-e page-faults/call-graph=fp/,minor-faults/call-graph=no/", "-g --buildid-mmap", "-g -T -d -W",
		"-g -e sched:sched_process_exit -c 1", "-g -e sched:sched_process_exit -c 1 -",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel() // perf record waits more than it works
			path := recordWithPerf(t, strings.Fields(args)...)
			want, got := perfStacks(t, path), ownStacks(t, path)
			if len(want) != len(got) || len(want) == 0 {
				t.Fatalf("%d samples, perf has %d", len(got), len(want))
			}
			if strings.Contains(args, "-a") {
				// For other processes perf prints no chain at times, as it may have seen only a part of their mappings.
				own := ownProcesses(t, path)
				foreign := func(s stack) bool { return !own[s.pid] }
				if want, got = slices.DeleteFunc(want, foreign), slices.DeleteFunc(got, foreign); len(want) == 0 {
					t.Fatal("no samples of the command")
				}
			}
			// Records that come after their round are in no defined order.
			slices.SortStableFunc(want, byTimeAndStack)
			slices.SortStableFunc(got, byTimeAndStack)
			for i := range want {
				if want[i] != got[i] {
					t.Fatalf("sample %d:\n got %v\nwant %v", i, got[i], want[i])
				}
			}
		})
	}
}

func TestReadsStacksThatPerfRecords(t *testing.T) {
	for _, args := range []string{"--call-graph dwarf", "--call-graph dwarf,65528 -z", "--call-graph dwarf -"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			path := recordWithPerf(t, strings.Fields(args)...)
			want := perfStacks(t, path)
			r, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var s perfring.Sample
			n := 0
			for {
				rec, err := r.Next()
				if err != nil {
					var damage *DamageError
					if errors.As(err, &damage) {
						t.Error(err)
					}
					break
				}
				if rec.Type() != perfring.RecordSample {
					continue
				}
				if err := r.Format(rec).Sample(rec, &s); err != nil {
					t.Fatal(err)
				}
				if len(s.Stack) > 0 {
					n++
				}
			}
			if n == 0 || n > len(want) {
				t.Errorf("%d samples with stacks, perf has %d samples", n, len(want))
			}
		})
	}
}

func TestCPUsThatWereOnline(t *testing.T) {
	for _, c := range []struct {
		data []byte
		want int
	}{
		{[]byte{8, 0, 0, 0, 6, 0, 0, 0}, 6}, // of 8 that are present
		{[]byte{8, 0, 0, 0, 6}, 0},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0},
		{nil, 0},
	} {
		r := Reader{features: map[Feature]contents{NrCPUs: {data: c.data}}}
		if got := r.CPUs(); got != c.want {
			t.Errorf("%v: %d, want %d", c.data, got, c.want)
		}
	}
}
