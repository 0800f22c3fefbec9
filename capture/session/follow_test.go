package session

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/perfring/recordtest"
	"unspool/unwind"
	"unspool/unwind/image"
)

// TestSessionFollowsRecords asks, after some records, whether a sample lies in a mapping: in memory without a
// file, where a walk ends for want of CFI, or in none.
func TestSessionFollowsRecords(t *testing.T) {
	const code = 0x1800 // in the mapping of exec
	f := sessiontest.Format()
	id := &perfring.SampleID{PID: 7, TID: 7, Time: 5, ID: 1}
	record := func(b []byte, err error) perfring.Record {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	comm := func(pid uint32) perfring.Record {
		return record(perfring.AppendComm(nil, &f,
			&perfring.Comm{PID: pid, TID: pid, Comm: []byte("x"), Exec: true}, id))
	}
	mmap := func(misc uint16) perfring.Record {
		m := perfring.Mmap{PID: 7, TID: 7, Misc: unix.PERF_RECORD_MISC_USER, Addr: 0x1000, Len: 0x1000,
			Path: []byte("//anon")}
		r := record(perfring.AppendMmap(nil, &f, &m, id))
		binary.LittleEndian.PutUint16(r[4:], r.Misc()|misc)
		return r
	}
	mmap2 := func(misc uint16, prot uint32) perfring.Record {
		m := perfring.Mmap2{PID: 7, TID: 7, Misc: misc, Addr: 0x1000, Len: 0x1000, Prot: prot,
			Path: []byte("//anon")}
		return record(perfring.AppendMmap2(nil, &f, &m, id))
	}
	task := func(typ perfring.RecordType, misc uint16, pid, tid uint32) perfring.Record {
		r := record(recordtest.AppendTask(nil, &f, typ,
			&perfring.Task{PID: pid, TID: tid, PPID: 7, PTID: 7, Time: 5}, id))
		binary.LittleEndian.PutUint16(r[4:], r.Misc()|misc)
		return r
	}
	later := record(perfring.AppendComm(nil, &f, &perfring.Comm{PID: 9, TID: 9},
		&perfring.SampleID{Time: 1e9, ID: 1}))
	lost := record(perfring.AppendLost(nil, &f, &perfring.Lost{ID: 1, Lost: 1}, id))
	exec := []perfring.Record{comm(7), mmap(0)}
	after := func(more ...perfring.Record) []perfring.Record { return slices.Concat(exec, more) }
	const (
		user      = unix.PERF_RECORD_MISC_USER
		forkExec  = unix.PERF_RECORD_MISC_FORK_EXEC
		data      = unix.PERF_RECORD_MISC_MMAP_DATA
		readExec  = unix.PROT_READ | unix.PROT_EXEC
		readWrite = unix.PROT_READ | unix.PROT_WRITE
	)
	for _, c := range []struct {
		name    string
		records []perfring.Record
		pid     uint32
		mapped  bool
	}{
		{"a mapping", exec, 7, true},
		{"of another process", exec, 8, false},
		{"of data", []perfring.Record{comm(7), mmap(data)}, 7, false},
		{"data where code was", after(mmap(data)), 7, false},
		{"MMAP2 of code", []perfring.Record{comm(7), mmap2(user, readExec)}, 7, true},
		{"MMAP2 of data where code was", after(mmap2(user, readWrite)), 7, false},
		{"MMAP2 of the kernel's", []perfring.Record{comm(7), mmap2(unix.PERF_RECORD_MISC_KERNEL, readExec)}, 7,
			false},
		{"of the parent", after(task(perfring.RecordFork, 0, 8, 8)), 8, true},
		{"of one that perf says is the parent", after(task(perfring.RecordFork, forkExec, 8, 8)), 8, false},
		{"with a thread that perf tells of", after(task(perfring.RecordFork, forkExec, 7, 9)), 7, true},
		{"after an exec", after(comm(7)), 7, false},
		{"at the end, which is sampled", after(task(perfring.RecordExit, 0, 7, 7)), 7, true},
		{"after the end", after(task(perfring.RecordExit, 0, 7, 7), later), 7, false},
		{"a late one after the end", after(task(perfring.RecordExit, 0, 7, 7), mmap(0)), 7, false},
		{"one after the end, where records were lost", after(task(perfring.RecordExit, 0, 7, 7), lost, mmap(0)), 7,
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestSession(sessiontest.Discard{})
			s.config.Offline = new(image.Offline) // nothing is looked up in /proc
			for _, r := range append(slices.Clip(c.records), sessiontest.UserSample(c.pid, code).Record()) {
				if err := s.Record(r); err != nil {
					t.Fatal(err)
				}
			}
			if s.Stats.Malformed != 0 || s.Stats.User != 1 {
				t.Fatalf("%+v", s.Stats)
			}
			want := unwind.Unmapped
			if c.mapped {
				want = unwind.NoCFI
			}
			if s.Stats.Ended[want] != 1 {
				t.Errorf("ended: %v, want %v", s.Stats.Ended, want)
			}
		})
	}
}

// TestMappingsAreReadAgain samples code in memory that no record told of, in this process.
func TestMappingsAreReadAgain(t *testing.T) {
	var k sessiontest.Collector
	f := sessiontest.Format()
	s := New(Config{Format: &f, Sink: &k, Proc: "/proc", MaxStack: 2048})
	pid := uint32(os.Getpid())
	if err := s.Seed([]int{int(pid)}); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	at := uint64(uintptr(unsafe.Pointer(&memory[0])))
	k.Records = nil
	if err := s.Record(sessiontest.UserSample(pid, at).Record()); err != nil {
		t.Fatal(err)
	}
	if s.Stats.Ended[unwind.NoCFI] != 1 {
		t.Errorf("ended: %v", s.Stats.Ended)
	}
	// The mapping has to be in the recording, before the sample.
	told := false
	for _, r := range k.Records[:len(k.Records)-1] {
		var m perfring.Mmap2
		if r.Type() == perfring.RecordMmap2 && perfring.DecodeMmap2(r, &m) == nil && m.PID == pid {
			told = told || m.Addr <= at && at < m.Addr+m.Len
		}
	}
	if last := k.Records[len(k.Records)-1]; !told || last.Type() != perfring.RecordSample {
		t.Errorf("the mapping was written: %v; the last of %d records is %v", told, len(k.Records), last.Type())
	}
}

// TestUnsavedRegistersAreNotUsed has samples as an NMI takes them in the kernel: RBX was not saved, and -1 is
// in its place. In user mode, -1 is its value.
func TestUnsavedRegistersAreNotUsed(t *testing.T) {
	const bx = 3 // its DWARF number
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  sessiontest.UserRegs | 1<<1, // and BX
		Sample_stack_user: 64,
		Bits:              unix.PerfBitSampleIDAll,
	})
	for _, c := range []struct {
		misc  uint32
		value uint64
		known bool
	}{
		{unix.PERF_RECORD_MISC_KERNEL, ^uint64(0), false},
		{unix.PERF_RECORD_MISC_KERNEL, 5, true},
		{unix.PERF_RECORD_MISC_USER, ^uint64(0), true},
	} {
		sample := sessiontest.UserSample(7, 0x1234)
		sample.Misc, sample.Chain = c.misc, []uint64{^uint64(127), 9}
		b := sample.Record()
		const abi = 8 + 5*8 + 2*8 // behind the header, five words and two entries of the callchain
		b = slices.Insert(b, abi+8, binary.LittleEndian.AppendUint64(nil, c.value)...)
		binary.LittleEndian.PutUint16(b[6:], uint16(len(b)))

		s := New(Config{Format: &format, Sink: sessiontest.Discard{}, MaxStack: 2048})
		if err := s.Record(b); err != nil || s.Stats.User != 1 {
			t.Fatalf("%+v, %v", s.Stats, err)
		}
		if value, known := s.work.regs.Get(bx); known != c.known || value != c.value {
			t.Errorf("misc %d: RBX is %#x, known: %v; want %#x, %v", c.misc, value, known, c.value, c.known)
		}
		if sp, known := s.work.regs.Get(unwind.SP); !known || sp != sample.SP {
			t.Errorf("misc %d: RSP is %#x, known: %v", c.misc, sp, known)
		}
	}
}
