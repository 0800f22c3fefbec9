package replay

import (
	"encoding/binary"
	"math"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/perfring/recordtest"
	"unspool/vmas"
)

var format = perfring.NewFormat(&unix.PerfEventAttr{
	Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME, Bits: unix.PerfBitSampleIDAll,
})

// made returns a record that an encoder has made, with more bits in its misc.
func made(t *testing.T, misc uint16, b []byte, err error) perfring.Record {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(b[4:], binary.LittleEndian.Uint16(b[4:])|misc)
	return b
}

// words is a record of 8-byte words, for types that have no encoder.
func words(typ perfring.RecordType, w ...uint64) perfring.Record {
	b := binary.LittleEndian.AppendUint32(nil, uint32(typ))
	b = binary.LittleEndian.AppendUint16(append(b, 0, 0), uint16(8+8*len(w)))
	for _, v := range w {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func pair(lo, hi uint32) uint64 { return uint64(hi)<<32 | uint64(lo) }

// task is a FORK or EXIT record: pid, ppid, tid, ptid, time, and the trailer.
func task(typ perfring.RecordType, misc uint16, pid, ppid, tid, ptid uint32) perfring.Record {
	r := words(typ, pair(pid, ppid), pair(tid, ptid), 5, pair(pid, tid), 5)
	binary.LittleEndian.PutUint16(r[4:], misc)
	return r
}

func mmap(t *testing.T, misc uint16, m perfring.Mmap) perfring.Record {
	b, err := perfring.AppendMmap(nil, &format, &m, &perfring.SampleID{})
	return made(t, misc, b, err)
}

func mmap2(t *testing.T, m perfring.Mmap2) perfring.Record {
	b, err := perfring.AppendMmap2(nil, &format, &m, &perfring.SampleID{})
	return made(t, 0, b, err)
}

func comm(t *testing.T, c perfring.Comm) perfring.Record {
	b, err := perfring.AppendComm(nil, &format, &c, &perfring.SampleID{})
	return made(t, 0, b, err)
}

// code is an MMAP record of code in process 7.
func code(t *testing.T) perfring.Record {
	return mmap(t, unix.PERF_RECORD_MISC_USER, perfring.Mmap{PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000,
		Offset: 0x3000, Path: []byte("/bin/seven")})
}

// TestWhatRecordsSay decodes each kind of record.
func TestWhatRecordsSay(t *testing.T) {
	file := vmas.FileID{Major: 8, Minor: 1, Inode: 99, Generation: 3}
	id := perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 7, TID: 8, Addr: 0x1000, Len: 0x1000,
		Offset: 0x3000,
		Prot:   unix.PROT_EXEC, Flags: 2, Path: []byte("/bin/seven")}
	byInode, byBuildID := id, id
	byInode.Maj, byInode.Min, byInode.Inode, byInode.Generation = 8, 1, 99, 3
	byBuildID.BuildID = []byte{1, 2, 3}
	mapOf := func(prot, flags uint32, id vmas.FileID) vmas.Map {
		return vmas.Map{Addr: 0x1000, Len: 0x1000, Offset: 0x3000, Prot: prot, Flags: flags,
			Name: []byte("/bin/seven"), ID: id}
	}
	kernel := perfring.Mmap{PID: noParent, Addr: 0x1000, Len: 0x1000, Offset: 0x3000,
		Path: []byte("[kernel.kallsyms]_text")}
	kernelMap := mapOf(vmas.ProtExec, 0, vmas.FileID{})
	kernelMap.Name = kernel.Path
	allowed := format.AllowBuildIDs()
	for _, c := range []struct {
		name   string
		record perfring.Record
		format *perfring.SampleFormat
		want   Change
	}{
		{"MMAP", code(t), &format, Change{Kind: Mapping, PID: 7, TID: 7, Map: mapOf(vmas.ProtExec, 0,
			vmas.FileID{})}},
		{"MMAP of data", mmap(t, unix.PERF_RECORD_MISC_MMAP_DATA, perfring.Mmap{PID: 7, TID: 7, Addr: 0x1000,
			Len: 0x1000, Offset: 0x3000, Path: []byte("/bin/seven")}),
			&format, Change{Kind: Mapping, PID: 7, TID: 7, Map: mapOf(0, 0, vmas.FileID{})}},
		{"MMAP2 by inode", mmap2(t, byInode), &format, Change{Kind: Mapping, PID: 7, TID: 8,
			Map: mapOf(vmas.ProtExec, 2, file)}},
		{"MMAP2 by build ID", mmap2(t, byBuildID), &allowed,
			Change{Kind: Mapping, PID: 7, TID: 8, Map: mapOf(vmas.ProtExec, 2,
				vmas.FileID{BuildID: vmas.NewBuildID([]byte{1, 2, 3})})}},
		{"MMAP of the kernel", mmap(t, unix.PERF_RECORD_MISC_KERNEL, kernel), &format, Change{Kind: Kernel,
			PID: noParent, Map: kernelMap}},
		{"COMM", comm(t, perfring.Comm{PID: 7, TID: 8, Comm: []byte("seven")}), &format, Change{Kind: Comm,
			PID: 7, TID: 8, Comm: []byte("seven")}},
		{"exec", comm(t, perfring.Comm{PID: 7, TID: 8, Comm: []byte("seven"), Exec: true}), &format,
			Change{Kind: Comm, PID: 7, TID: 8, Comm: []byte("seven"), Exec: true}},
		{"FORK", task(perfring.RecordFork, 0, 8, 7, 8, 7), &format, Change{Kind: Fork, PID: 8, PPID: 7,
			TID: 8, PTID: 7}},
		{"FORK by perf", task(perfring.RecordFork, unix.PERF_RECORD_MISC_FORK_EXEC, 8, 7, 8, 7), &format,
			Change{Kind: Fork, PID: 8, PPID: 7, TID: 8, PTID: 7, MadeUp: true}},
		{"EXIT", task(perfring.RecordExit, 0, 8, 7, 8, 7), &format, Change{Kind: Exit, PID: 8, PPID: 7,
			TID: 8, PTID: 7}},
		{"LOST", words(perfring.RecordLost, 1, 33), &format, Change{Kind: LostRecords, Lost: 33}},
		{"LOST_SAMPLES", words(perfring.RecordLostSamples, 44), &format, Change{Kind: LostSamples, Lost: 44}},
		{"THROTTLE", words(perfring.RecordThrottle, 5, 1, 1), &format, Change{Kind: Throttled}},
		{"UNTHROTTLE", words(perfring.RecordUnthrottle, 5, 1, 1), &format, Change{}},
		{"a sample", words(perfring.RecordSample, 0), &format, Change{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := New(vmas.NewTable("")).Record(c.record, c.format)
			if err != nil {
				t.Fatal(err)
			}
			have := *got
			if string(have.Record) != string(c.record) {
				t.Errorf("the record is % x, want % x", have.Record, c.record)
			}
			have.Record, have.Mapping = nil, nil
			if !reflect.DeepEqual(have, c.want) {
				t.Errorf("%+v\nwant %+v", have, c.want)
			}
		})
	}
}

// TestRecordsChangeAddressSpaces asks where code is after some records.
func TestRecordsChangeAddressSpaces(t *testing.T) {
	exec := comm(t, perfring.Comm{PID: 7, TID: 7, Comm: []byte("seven"), Exec: true})
	exit := task(perfring.RecordExit, 0, 7, 1, 7, 1)
	at := func(time uint64) perfring.Record { // of another process
		b, err := perfring.AppendComm(nil, &format, &perfring.Comm{PID: 9, TID: 9}, &perfring.SampleID{Time: time})
		return made(t, 0, b, err)
	}
	born := task(perfring.RecordFork, 0, 7, 1, 7, 1)
	kernel := mmap(t, unix.PERF_RECORD_MISC_KERNEL, perfring.Mmap{PID: 7, Addr: 0x1000, Len: 0x1000,
		Path: []byte("[kernel.kallsyms]_text")})
	for _, c := range []struct {
		name    string
		records []perfring.Record
		pid     uint32
		mapped  bool
	}{
		{"a mapping", []perfring.Record{exec, code(t)}, 7, true},
		{"of another process", []perfring.Record{exec, code(t)}, 8, false},
		{"of the parent", []perfring.Record{exec, code(t), task(perfring.RecordFork, 0, 8, 7, 8, 7)}, 8,
			true},
		{"of one that ran already", []perfring.Record{exec, code(t), task(perfring.RecordFork,
			unix.PERF_RECORD_MISC_FORK_EXEC, 8, 7, 8, 7)}, 8, false},
		{"with a thread that ran already", []perfring.Record{exec, code(t), task(perfring.RecordFork,
			unix.PERF_RECORD_MISC_FORK_EXEC, 7, 7, 9, 7)}, 7, true},
		{"of the kernel", []perfring.Record{exec, kernel}, 7, false},
		{"after an exec", []perfring.Record{exec, code(t), exec}, 7, false},
		{"at the end, which is sampled", []perfring.Record{exec, code(t), exit, at(5 + graceful)}, 7, true},
		{"a time that is none", []perfring.Record{exec, code(t), exit, at(math.MaxUint64)}, 7, true},
		{"after the end", []perfring.Record{exec, code(t), exit, at(6 + graceful)}, 7, false},
		{"of the next one with the PID", []perfring.Record{exec, code(t), exit, born}, 7, false},
		{"of the next one's program", []perfring.Record{exec, code(t), exit, exec, at(6 + graceful)}, 7, false},
		{"code of that", []perfring.Record{exec, exit, exec, code(t), at(6 + graceful)}, 7, true},
		{"a late one", []perfring.Record{exec, exit, code(t)}, 7, false},
		{"a late one, where records were lost", []perfring.Record{exec, exit, words(perfring.RecordLost, 1,
			1), code(t)}, 7, true},
		{"a late one, where samples were lost", []perfring.Record{exec, exit,
			words(perfring.RecordLostSamples, 1), code(t)}, 7, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := vmas.NewTable("")
			r := NewRecorded(table)
			for _, rec := range c.records {
				if _, err := r.Record(rec, &format); err != nil {
					t.Fatal(err)
				}
			}
			space := table.Space(c.pid)
			if mapped := space != nil && space.Find(0x1800) != nil; mapped != c.mapped {
				t.Errorf("mapped: %v", mapped)
			}
		})
	}
}

// TestANameMakesAProcessKnown in a recording only: where /proc can be read, it says more.
func TestANameMakesAProcessKnown(t *testing.T) {
	live, recorded := vmas.NewTable(""), vmas.NewTable("")
	name := comm(t, perfring.Comm{PID: 7, TID: 8, Comm: []byte("thread")})
	for _, r := range []*Replay{New(live), NewRecorded(recorded)} {
		if _, err := r.Record(name, &format); err != nil {
			t.Fatal(err)
		}
	}
	if live.Space(7) != nil {
		t.Error("a live process is known by its name")
	}
	if s := recorded.Space(7); s == nil || s.Comm(8) != "thread" {
		t.Errorf("a recorded process is not: %v", s)
	}
}

// TestBuildIDsThatNobodyAskedFor: the bit of another profiler's is no build ID.
func TestBuildIDsThatNobodyAskedFor(t *testing.T) {
	rec := mmap2(t, perfring.Mmap2{PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000, Inode: 99, Prot: unix.PROT_EXEC,
		Path: []byte("/bin/seven")})
	plain := string(rec)
	binary.LittleEndian.PutUint16(rec[4:], unix.PERF_RECORD_MISC_MMAP_BUILD_ID)
	r := New(vmas.NewTable(""))
	for range 2 {
		c, err := r.Record(rec, &format)
		if err != nil || c.Map.ID.Inode != 99 || string(c.Record) != plain {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

func TestPeek(t *testing.T) {
	m := perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000,
		Offset: 0x3000, Inode: 99, Prot: unix.PROT_EXEC, Path: []byte("/bin/seven")}
	data, kernel := m, m
	data.Prot, kernel.Misc = unix.PROT_READ, unix.PERF_RECORD_MISC_KERNEL
	table := vmas.NewTable("")
	r := New(table)
	for _, rec := range []perfring.Record{mmap2(t, data), mmap2(t, kernel), code(t), comm(t,
		perfring.Comm{PID: 7, TID: 7}), mmap2(t, m)[:40]} {
		if pid, _, ok := r.Peek(rec, &format); ok {
			t.Errorf("%v: a mapping of process %d", rec.Type(), pid)
		}
	}
	pid, got, ok := r.Peek(mmap2(t, m), &format)
	if !ok || pid != 7 || got.Start != 0x1000 || got.End != 0x2000 || got.Offset != 0x3000 ||
		got.File.Path != "/bin/seven" {
		t.Errorf("process %d, %+v, %v", pid, got, ok)
	}
	if table.Len() != 0 {
		t.Error("a process is known before its turn")
	}
	c, err := r.Record(mmap2(t, m), &format)
	if err != nil || c.Mapping == nil || c.Mapping.File != got.File {
		t.Errorf("%+v, %v: another file", c, err)
	}
	r.Peek(mmap2(t, perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: 8, Prot: unix.PROT_EXEC}), &format)
	if c.PID != 7 || c.Map.Addr != 0x1000 {
		t.Errorf("%+v after a look at another record", c)
	}
}

func TestKernelSymbol(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kind       Kind
	}{
		{"[kernel.kallsyms]_text", "_text", Kernel},
		{"[kernel.kallsyms]", "", Kernel},
		{"[kernel.kallsyms]_text", "", Mapping},
		{"[vdso]", "", Kernel},
	} {
		change := Change{Kind: c.kind, Map: vmas.Map{Name: []byte(c.name), Offset: 5}}
		if got, addr := change.KernelSymbol(); got != c.want || got != "" && addr != 5 {
			t.Errorf("%v %s: %q at %d", c.kind, c.name, got, addr)
		}
	}
}

func TestCounts(t *testing.T) {
	r := New(vmas.NewTable(""))
	var n Losses
	for _, rec := range []perfring.Record{
		words(perfring.RecordLost, 1, 33), words(perfring.RecordLost, 2, 1), words(perfring.RecordLostSamples,
			5),
		words(perfring.RecordThrottle, 5, 1, 1), words(perfring.RecordUnthrottle, 5, 1, 1), code(t),
	} {
		c, err := r.Record(rec, &format)
		if err != nil {
			t.Fatal(err)
		}
		n.Add(c)
	}
	if n != (Losses{Records: 34, Samples: 5, Throttled: 1}) || n.Lost() != 39 {
		t.Errorf("%+v, %d lost", n, n.Lost())
	}
}

// TestMalformedRecordsChangeNothing cuts records short.
func TestMalformedRecordsChangeNothing(t *testing.T) {
	for _, rec := range []perfring.Record{
		code(t)[:24], task(perfring.RecordFork, 0, 8, 7, 8, 7)[:12], task(perfring.RecordExit, 0, 7, 7, 7,
			7)[:12], words(perfring.RecordLost),
		words(perfring.RecordLostSamples), comm(t, perfring.Comm{PID: 7, TID: 7, Exec: true})[:16],
	} {
		table := vmas.NewTable("")
		r := New(table)
		if _, err := r.Record(code(t), &format); err != nil {
			t.Fatal(err)
		}
		if c, err := r.Record(rec, &format); err == nil || c != nil {
			t.Errorf("%v: %+v, %v", rec.Type(), c, err)
		}
		if s := table.Space(7); table.Len() != 1 || s.Find(0x1000) == nil {
			t.Errorf("%v: mappings have changed", rec.Type())
		}
	}
}

// TestProgramsToCome looks at the records that tell of another program, or of a new process, before they are applied.
// Until then /proc shows what has not been sampled yet.
func TestProgramsToCome(t *testing.T) {
	self := uint32(os.Getpid())
	exec, err := perfring.AppendComm(nil, &format, &perfring.Comm{PID: self, TID: self, Exec: true},
		&perfring.SampleID{Time: 5})
	if err != nil {
		t.Fatal(err)
	}
	fork, err := recordtest.AppendTask(nil, &format, perfring.RecordFork,
		&perfring.Task{PID: self, TID: self, PPID: 1, PTID: 1, Time: 5}, &perfring.SampleID{Time: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []perfring.Record{exec, fork} {
		table := vmas.NewTable("/proc")
		r := New(table)
		r.Peek(rec, &format)
		if s, err := table.SeedNow(self); s != nil || err != nil {
			t.Errorf("%v: the process is read: %v", rec.Type(), err)
		}
		if _, err := r.Record(rec, &format); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"applied", "applied, and looked at again"} { // as it is in the ring still
			if s, err := table.SeedNow(self); err != nil || s.Len() == 0 {
				t.Errorf("%v is %s: the process is not read: %v", rec.Type(), what, err)
			}
			r.Peek(rec, &format)
		}
	}
}

// TestLostSamplesDoubtNobody: records that were lost where all others are doubt what is known of processes; those where
// only samples are do not.
func TestLostSamplesDoubtNobody(t *testing.T) {
	for _, ofSamples := range []bool{false, true} {
		table := vmas.NewTable("")
		r := New(table)
		r.OfSamples = func() bool { return ofSamples }
		if _, err := r.Record(comm(t, perfring.Comm{PID: 5, TID: 5, Exec: true, Comm: []byte("five")}), &format); err != nil {
			t.Fatal(err)
		}
		c, err := r.Record(words(perfring.RecordLost, 1, 33), &format)
		if err != nil || c.Kind != LostRecords || c.Lost != 33 {
			t.Errorf("%+v, %v", c, err)
		}
		if doubted := table.Space(5).Doubted(); doubted == ofSamples {
			t.Errorf("of samples: %v, doubted: %v", ofSamples, doubted)
		}
	}
}

// TestMappingsToCome looks at the record of a mapping before it is applied, and at it again after that.
func TestMappingsToCome(t *testing.T) {
	b, err := perfring.AppendMmap2(nil, &format, &perfring.Mmap2{PID: 5, TID: 5, Addr: 0x1000, Len: 0x1000,
		Prot: unix.PROT_EXEC, Path: []byte("/a")}, &perfring.SampleID{PID: 5, TID: 5, Time: 7})
	if err != nil {
		t.Fatal(err)
	}
	table := vmas.NewTable("")
	r := New(table)
	is := func(what string, want bool) {
		t.Helper()
		if got := table.IsMappingToCome(5); got != want {
			t.Errorf("%s: a mapping is to come: %v", what, got)
		}
	}
	is("first", false)
	r.Peek(b, &format)
	is("looked at", true)
	if _, err := r.Record(b, &format); err != nil {
		t.Fatal(err)
	}
	is("applied", false)
	r.Peek(b, &format) // as it is in the ring still
	is("looked at again", false)
}
