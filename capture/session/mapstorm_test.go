package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/session/sessiontest"
	"unspool/dwarfcfi"
	"unspool/perfring"
	"unspool/vmas"
)

// mapRecord is a PERF_RECORD_MMAP2 of a file's code.
func mapRecord(pid uint32, addr, size, inode uint64, path string) perfring.Record {
	le := binary.LittleEndian
	b := le.AppendUint32(le.AppendUint32(nil, pid), pid)
	for _, v := range []uint64{addr, size, 0} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, 0) // device
	b = le.AppendUint64(le.AppendUint64(b, inode), 0)
	b = le.AppendUint32(le.AppendUint32(b, vmas.ProtRead|vmas.ProtExec), vmas.FlagPrivate)
	b = append(b, path...)
	b = append(b, make([]byte, 8-len(path)%8)...)
	b = le.AppendUint32(le.AppendUint32(b, pid), pid) // the sample_id of sessiontest.Format
	b = le.AppendUint64(le.AppendUint64(b, 1000), 1)
	h := le.AppendUint32(nil, uint32(perfring.RecordMmap2))
	h = le.AppendUint16(le.AppendUint16(h, unix.PERF_RECORD_MISC_USER), uint16(8+len(b)))
	return append(h, b...)
}

// BenchmarkMappingStorm measures the cost of a sample, eight frames deep, while its process maps libraries in
// the place of others: at 999 samples and 500 mappings a second there is one mapping for two samples.
func BenchmarkMappingStorm(b *testing.B) {
	const libc, base, plugins = "/lib/x86_64-linux-gnu/libc.so.6", 0x7f00_0000_0000, 0x7e00_0000_0000
	file, err := os.ReadFile(libc)
	if err != nil {
		b.Skip(err)
	}
	s, err := dwarfcfi.FindSections(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		b.Fatal(err)
	}
	table, err := dwarfcfi.New(s)
	if err != nil {
		b.Fatal(err)
	}
	// Return addresses one byte into functions: their callers' are in the next word.
	var stack []byte
	for d, err := range table.FDEs() {
		var row dwarfcfi.Row
		if err == nil && d.Row(d.Start, &row) == nil && row.CFA.Reg == 7 && row.CFA.Offset == 8 &&
			d.Start%16 == 0 && len(stack) < 64 {
			stack = binary.LittleEndian.AppendUint64(stack, base+d.Start+1)
		}
	}
	pid := uint32(os.Getpid())
	sample := sessiontest.RawSample{
		PID: pid, Misc: unix.PERF_RECORD_MISC_USER, ABI: unix.PERF_SAMPLE_REGS_ABI_64,
		IP: binary.LittleEndian.Uint64(stack) - 1, SP: 0x7000, Stack: stack, DynSize: 64,
	}.Record()
	inode := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			b.Fatal(err)
		}
		return st.Ino
	}
	dir := b.TempDir()
	// copies are that many files, each mapped where the others of its kind are.
	copies := func(n int) (list []perfring.Record) {
		for i := range n {
			path := filepath.Join(dir, fmt.Sprintf("%d-of-%d.so", i, n))
			if err := os.WriteFile(path, file[:1<<9], 0o644); err != nil { // without the build ID, which is further on
				b.Fatal(err)
			}
			at := plugins + uint64(i%16)<<20
			list = append(list, mapRecord(pid, at, 1<<20, inode(path), path))
		}
		return list
	}
	known, fresh := copies(40), copies(400)
	for _, c := range []struct {
		name    string
		maps    []perfring.Record
		mapping int // one for as many samples
		sample  bool
	}{
		{"samples", nil, 0, true},
		{"samples and mappings", known, 2, true},
		{"samples and mappings of new files", fresh, 2, true},
		{"mappings", known, 1, false},
		{"mappings of new files", fresh, 1, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			format := sessiontest.Format()
			session := New(Config{Format: &format, Sink: sessiontest.Discard{}, MaxStack: 2048})
			session.Record(mapRecord(pid, base, uint64(len(file)+4095)&^4095, inode(libc), libc))
			session.Record(sample)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if c.mapping > 0 && i%c.mapping == 0 {
					session.Record(c.maps[i/c.mapping%len(c.maps)])
				}
				if c.sample {
					session.Record(sample)
				}
				i++
			}
			if n := session.Stats.Frames; n < 8*session.Stats.User {
				b.Fatalf("%d frames in %d stacks", n, session.Stats.User)
			}
		})
	}
}
