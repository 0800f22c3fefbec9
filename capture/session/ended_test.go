package session

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/format/syscap"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/perfring/recordtest"
)

// TestNothingIsKeptOfProcessesThatHaveEnded has thousands of processes begin, map a file, be sampled and end,
// for a recording as Sysprof makes it, and looks at what is in memory once garbage is collected.
func TestNothingIsKeptOfProcessesThatHaveEnded(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "capture"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	format := sessiontest.Format()
	live, err := syscap.NewLive(syscap.LiveOptions{FD: int(file.Fd()), Format: &format})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Format: &format, Sink: live, MaxStack: 2048, Live: true, Join: true,
		JoinAfter: 10 * time.Millisecond, Proc: "/proc"})
	const sampleTime = 32  // where a sample's time is in its record
	pid := uint32(1 << 23) // from here on there are no processes
	var at uint64
	process := func() {
		pid, at = pid+1, at+uint64(20*time.Millisecond)
		id := perfring.SampleID{PID: pid, TID: pid, Time: at, ID: 1}
		task := perfring.Task{PID: pid, PPID: 1, TID: pid, PTID: 1, Time: at}
		fork, err := recordtest.AppendTask(nil, &format, perfring.RecordFork, &task, &id)
		comm, cerr := perfring.AppendComm(nil, &format, &perfring.Comm{PID: pid, TID: pid, Exec: true,
			Comm: []byte("short")}, &id)
		mmap, merr := perfring.AppendMmap2(nil, &format, &perfring.Mmap2{PID: pid, TID: pid, Addr: 0x400000,
			Len: 0x10000, Prot: unix.PROT_EXEC, Path: []byte("/bin/true")}, &id)
		sample := sessiontest.RawSample{PID: pid, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64,
			IP: 0x400100, SP: 0x7000, Stack: make([]byte, 64), DynSize: 64}.Record()
		binary.LittleEndian.PutUint64(sample[sampleTime:], at)
		exit, xerr := recordtest.AppendTask(nil, &format, perfring.RecordExit, &task, &id)
		for _, err := range []error{err, cerr, merr, xerr, s.Record(fork), s.Record(comm), s.Record(mmap),
			s.Record(sample), s.Record(exit), s.Settle(at)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	alive := func(processes int) int64 {
		for i := range processes {
			if process(); i%500 == 499 {
				s.Sweep()
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what is in pools goes with the second one
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	alive(5000) // the last 4,096 PIDs are remembered: see package vmas
	before := alive(500)
	const more = 4000
	after := alive(more)
	t.Logf("%d bytes, and %d after %d more processes", before, after, more)
	if s.Stats.User == 0 || after-before > 64*more {
		t.Errorf("%d samples; %d bytes for each process that has ended", s.Stats.User, (after-before)/more)
	}
	runtime.KeepAlive(s)
}
