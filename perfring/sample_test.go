package perfring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// sampleOf is the kernel's perf_output_sample() for tests: it writes a sample with the fields of
// f in the order of the comment at PERF_RECORD_SAMPLE in include/uapi/linux/perf_event.h. Every value
// is different from all others. It returns the record and the values in it.
func sampleOf(f *SampleFormat, rnd *rand.Rand) (Record, Sample) {
	le := binary.LittleEndian
	t := f.sampleType
	s := Sample{Misc: uint16(rnd.Intn(1 << 16))}
	b := appendHeader(nil, RecordSample, s.Misc)
	u64 := func(has uint64, p *uint64) {
		if t&has != 0 {
			*p = rnd.Uint64()
			b = le.AppendUint64(b, *p)
		}
	}
	words := func(n int) Words {
		w := make([]byte, 8*n)
		rnd.Read(w)
		b = append(b, w...)
		return w
	}
	u64(unix.PERF_SAMPLE_IDENTIFIER, &s.ID)
	u64(unix.PERF_SAMPLE_IP, &s.IP)
	if t&unix.PERF_SAMPLE_TID != 0 {
		s.PID, s.TID = rnd.Uint32(), rnd.Uint32()
		b = le.AppendUint32(le.AppendUint32(b, s.PID), s.TID)
	}
	u64(unix.PERF_SAMPLE_TIME, &s.Time)
	u64(unix.PERF_SAMPLE_ADDR, &s.Addr)
	if t&unix.PERF_SAMPLE_ID != 0 && t&unix.PERF_SAMPLE_IDENTIFIER != 0 {
		b = le.AppendUint64(b, s.ID)
	} else {
		u64(unix.PERF_SAMPLE_ID, &s.ID)
	}
	u64(unix.PERF_SAMPLE_STREAM_ID, &s.StreamID)
	if t&unix.PERF_SAMPLE_CPU != 0 {
		s.CPU = rnd.Uint32()
		b = le.AppendUint32(le.AppendUint32(b, s.CPU), 0)
	}
	u64(unix.PERF_SAMPLE_PERIOD, &s.Period)
	if t&unix.PERF_SAMPLE_READ != 0 {
		at := len(b)
		each := 1 + bits.OnesCount64(f.readFormat&(unix.PERF_FORMAT_ID|unix.PERF_FORMAT_LOST))
		n := each
		if f.readFormat&unix.PERF_FORMAT_GROUP != 0 {
			nr := rnd.Intn(3)
			b = le.AppendUint64(b, uint64(nr))
			n = nr * each
		}
		words(n +
			bits.OnesCount64(f.readFormat&(unix.PERF_FORMAT_TOTAL_TIME_ENABLED|unix.PERF_FORMAT_TOTAL_TIME_RUNNING)))
		s.Read = b[at:]
	}
	if t&unix.PERF_SAMPLE_CALLCHAIN != 0 {
		n := rnd.Intn(5)
		b = le.AppendUint64(b, uint64(n))
		s.Callchain = words(n)
	}
	if t&unix.PERF_SAMPLE_RAW != 0 {
		n := 8*rnd.Intn(4) + 4
		b = le.AppendUint32(b, uint32(n))
		s.Raw = make([]byte, n)
		rnd.Read(s.Raw)
		b = append(b, s.Raw...)
	}
	if t&unix.PERF_SAMPLE_BRANCH_STACK != 0 {
		n := rnd.Intn(3)
		b = le.AppendUint64(b, uint64(n))
		if f.branchType&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
			u64(unix.PERF_SAMPLE_BRANCH_STACK, &s.BranchHWIndex)
		}
		if n > 0 {
			s.Branches = words(3 * n)
			if f.branchType&unix.PERF_SAMPLE_BRANCH_COUNTERS != 0 {
				s.BranchCounters = words(n)
			}
		}
	}
	regs := func(mask uint64) (uint64, uint64, Words) {
		abi := uint64(rnd.Intn(3))
		b = le.AppendUint64(b, abi)
		if abi == unix.PERF_SAMPLE_REGS_ABI_NONE {
			return abi, 0, nil
		}
		return abi, mask, words(bits.OnesCount64(mask))
	}
	if t&unix.PERF_SAMPLE_REGS_USER != 0 {
		s.RegsABI, s.RegsMask, s.Regs = regs(f.regsUser)
	}
	if t&unix.PERF_SAMPLE_STACK_USER != 0 {
		s.StackSize = uint64(8 * rnd.Intn(4))
		b = le.AppendUint64(b, s.StackSize)
		if s.StackSize > 0 {
			dump := words(int(s.StackSize / 8))
			s.DynSize = uint64(rnd.Intn(int(s.StackSize) + 1))
			b = le.AppendUint64(b, s.DynSize)
			s.Stack = dump[:s.DynSize]
		}
	}
	u64(unix.PERF_SAMPLE_WEIGHT|unix.PERF_SAMPLE_WEIGHT_STRUCT, &s.Weight)
	u64(unix.PERF_SAMPLE_DATA_SRC, &s.DataSrc)
	u64(unix.PERF_SAMPLE_TRANSACTION, &s.Transaction)
	if t&unix.PERF_SAMPLE_REGS_INTR != 0 {
		s.IntrABI, s.IntrMask, s.RegsIntr = regs(f.regsIntr)
	}
	u64(unix.PERF_SAMPLE_PHYS_ADDR, &s.PhysAddr)
	u64(unix.PERF_SAMPLE_CGROUP, &s.Cgroup)
	u64(unix.PERF_SAMPLE_DATA_PAGE_SIZE, &s.DataPageSize)
	u64(unix.PERF_SAMPLE_CODE_PAGE_SIZE, &s.CodePageSize)
	if t&unix.PERF_SAMPLE_AUX != 0 {
		n := 8 * rnd.Intn(3)
		b = le.AppendUint64(b, uint64(n))
		s.Aux = words(n / 8)
	}
	b, err := finishRecord(b, 0)
	if err != nil {
		panic(err)
	}
	return Record(b), s
}

// sameSample compares what a reader of samples can see.
func sameSample(t *testing.T, got, want *Sample) {
	t.Helper()
	for _, f := range []struct {
		name      string
		got, want uint64
	}{
		{"Misc", uint64(got.Misc), uint64(want.Misc)}, {"ID", got.ID, want.ID}, {"IP", got.IP, want.IP},
		{"PID", uint64(got.PID), uint64(want.PID)}, {"TID", uint64(got.TID), uint64(want.TID)},
		{"Time", got.Time, want.Time}, {"Addr", got.Addr, want.Addr}, {"StreamID", got.StreamID, want.StreamID},
		{"CPU", uint64(got.CPU), uint64(want.CPU)}, {"Period", got.Period, want.Period},
		{"BranchHWIndex", got.BranchHWIndex, want.BranchHWIndex},
		{"RegsABI", got.RegsABI, want.RegsABI}, {"RegsMask", got.RegsMask, want.RegsMask},
		{"StackSize", got.StackSize, want.StackSize}, {"DynSize", got.DynSize, want.DynSize},
		{"Weight", got.Weight, want.Weight}, {"DataSrc", got.DataSrc, want.DataSrc},
		{"Transaction", got.Transaction, want.Transaction},
		{"IntrABI", got.IntrABI, want.IntrABI}, {"IntrMask", got.IntrMask, want.IntrMask},
		{"PhysAddr", got.PhysAddr, want.PhysAddr}, {"Cgroup", got.Cgroup, want.Cgroup},
		{"DataPageSize", got.DataPageSize, want.DataPageSize},
		{"CodePageSize", got.CodePageSize, want.CodePageSize},
	} {
		if f.got != f.want {
			t.Errorf("%s = %#x, want %#x", f.name, f.got, f.want)
		}
	}
	for _, f := range []struct {
		name      string
		got, want []byte
	}{
		{"Read", got.Read, want.Read}, {"Callchain", got.Callchain, want.Callchain}, {"Raw", got.Raw, want.Raw},
		{"Branches", got.Branches, want.Branches}, {"BranchCounters", got.BranchCounters, want.BranchCounters},
		{"Regs", got.Regs, want.Regs}, {"Stack", got.Stack, want.Stack}, {"RegsIntr", got.RegsIntr, want.RegsIntr},
		{"Aux", got.Aux, want.Aux},
	} {
		if !bytes.Equal(f.got, f.want) {
			t.Errorf("%s = %x, want %x", f.name, f.got, f.want)
		}
	}
}

// randomFormat has any combination of the known fields.
func randomFormat(rnd *rand.Rand) SampleFormat {
	return SampleFormat{
		sampleType:  rnd.Uint64() & knownSampleType,
		readFormat:  rnd.Uint64() & knownReadFormat,
		branchType:  rnd.Uint64() & (unix.PERF_SAMPLE_BRANCH_HW_INDEX | unix.PERF_SAMPLE_BRANCH_COUNTERS),
		regsUser:    rnd.Uint64() & 0xff0fff,
		regsIntr:    rnd.Uint64() & 0xff0fff,
		sampleIDAll: rnd.Intn(4) > 0,
	}
}

func TestSampleDecodesEveryCombinationOfFields(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for i := range 20000 {
		f := randomFormat(rnd)
		if i < 25 { // each field alone, first
			f.sampleType = 1 << i
		}
		r, want := sampleOf(&f, rnd)
		var got Sample
		if err := f.Sample(r, &got); err != nil {
			t.Fatalf("sample_type %#x: %v", f.sampleType, err)
		}
		sameSample(t, &got, &want)
		if tm, ok := f.Time(r); ok != (f.sampleType&unix.PERF_SAMPLE_TIME != 0) || tm != want.Time {
			t.Errorf("Time = %#x, %v; want %#x", tm, ok, want.Time)
		}
		if id, _ := f.ID(r); id != want.ID {
			t.Errorf("ID = %#x, want %#x", id, want.ID)
		}
		if t.Failed() {
			t.Fatalf("sample_type %#x", f.sampleType)
		}
	}
}

func TestAppendUnwoundKeepsAllButChainRegistersAndStack(t *testing.T) {
	rnd := rand.New(rand.NewSource(2))
	prefix := []byte("what was there before")
	for range 20000 {
		f := randomFormat(rnd)
		r, want := sampleOf(&f, rnd)
		var s Sample
		if err := f.Sample(r, &s); err != nil {
			t.Fatal(err)
		}
		chain := make([]uint64, rnd.Intn(4))
		if f.HasStack() {
			want.Callchain = nil
			for i := range chain {
				chain[i] = rnd.Uint64()
				want.Callchain = binary.LittleEndian.AppendUint64(want.Callchain, chain[i])
			}
		}
		out, err := f.AppendUnwound(slices.Clone(prefix), r, &s, chain)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(out, prefix) {
			t.Fatal("bytes before the record changed")
		}
		rec, err := CheckRecord(out[len(prefix):])
		if err != nil || len(rec) != len(out)-len(prefix) {
			t.Fatalf("record of %d bytes in %d: %v", len(rec), len(out)-len(prefix), err)
		}
		want.RegsABI, want.RegsMask, want.Regs = 0, 0, nil
		want.Stack, want.StackSize, want.DynSize = nil, 0, 0
		u := f.Unwound()
		var got Sample
		if err := u.Sample(rec, &got); err != nil {
			t.Fatal(err)
		}
		if sameSample(t, &got, &want); t.Failed() {
			t.Fatalf("sample_type %#x", f.sampleType)
		}
	}
}

// A sample whose registers and stack were left out first is unwound to the same record.
func TestAppendWithoutUser(t *testing.T) {
	rnd := rand.New(rand.NewSource(5))
	for range 2000 {
		f := randomFormat(rnd)
		rec, _ := sampleOf(&f, rnd)
		var s, left Sample
		if err := f.Sample(rec, &s); err != nil {
			t.Fatal(err)
		}
		chain := []uint64{1, 2, 3}
		want, err := f.AppendUnwound(nil, rec, &s, chain)
		if err != nil {
			t.Fatal(err)
		}
		left = s
		kept := AppendWithoutUser([]byte("before"), rec, &left)
		clear(rec)
		if !bytes.HasPrefix(kept, []byte("before")) || len(kept[6:]) > len(rec) {
			t.Fatalf("%d bytes of %d", len(kept), len(rec))
		}
		if got, err := f.AppendUnwound(nil, Record(kept[6:]), &left, chain); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("sample_type %#x: %v, % x, want % x", f.sampleType, err, got, want)
		}
	}
}

// A sample that is cut is the one that a smaller copy would have made.
func TestAppendCut(t *testing.T) {
	rnd := rand.New(rand.NewSource(7))
	for range 2000 {
		f := randomFormat(rnd)
		rec, _ := sampleOf(&f, rnd)
		var s, cut Sample
		if err := f.Sample(rec, &s); err != nil {
			t.Fatal(err)
		}
		size := uint64(rnd.Intn(8)) * 8
		got, err := AppendCut(nil, rec, &s, size+8)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sample(got, &cut); err != nil {
			t.Fatal(err)
		}
		want := s
		want.StackSize, want.DynSize = min(s.StackSize, size+8), min(s.DynSize, size+8)
		want.Stack = s.Stack[:want.DynSize]
		sameSample(t, &cut, &want)
	}
}

func TestAppendUnwoundRefusesWhatNoHeaderCanState(t *testing.T) {
	f := SampleFormat{sampleType: unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_STACK_USER}
	r, _ := sampleOf(&f, rand.New(rand.NewSource(3)))
	var s Sample
	if err := f.Sample(r, &s); err != nil {
		t.Fatal(err)
	}
	// 16 bytes of header and nr: 8189 words make 65528 bytes, the largest multiple of 8.
	for n, want := range map[int]error{8189: nil, 8190: ErrTooLarge} {
		out, err := f.AppendUnwound([]byte("x"), r, &s, make([]uint64, n))
		if !errors.Is(err, want) {
			t.Errorf("%d frames: %v, want %v", n, err, want)
		}
		if err != nil && string(out) != "x" {
			t.Errorf("%d frames: dst has %d bytes more", n, len(out)-1)
		}
	}
}

func TestSampleRefusesWhatDoesNotFit(t *testing.T) {
	le := binary.LittleEndian
	rec := func(words ...uint64) Record {
		b := appendHeader(nil, RecordSample, 0)
		for _, w := range words {
			b = le.AppendUint64(b, w)
		}
		b, _ = finishRecord(b, 0)
		return b
	}
	for _, c := range []struct {
		name string
		f    SampleFormat
		r    Record
	}{
		{"unknown field", SampleFormat{sampleType: 1 << 40}, rec(1)},
		{"no ip", SampleFormat{sampleType: unix.PERF_SAMPLE_IP}, rec()},
		{"callchain one too long", SampleFormat{sampleType: unix.PERF_SAMPLE_CALLCHAIN}, rec(2, 0)},
		{"callchain overflows when multiplied", SampleFormat{sampleType: unix.PERF_SAMPLE_CALLCHAIN}, rec(1<<61+1, 0)},
		{"registers cut short", SampleFormat{sampleType: unix.PERF_SAMPLE_REGS_USER, regsUser: 7}, rec(2, 1, 2)},
		{"stack larger than record", SampleFormat{sampleType: unix.PERF_SAMPLE_STACK_USER}, rec(1<<63, 0)},
		{"no dyn_size", SampleFormat{sampleType: unix.PERF_SAMPLE_STACK_USER}, rec(8, 0)},
		{"dyn_size above size", SampleFormat{sampleType: unix.PERF_SAMPLE_STACK_USER}, rec(8, 0, 9)},
		{"raw", SampleFormat{sampleType: unix.PERF_SAMPLE_RAW}, rec(5)},
		{"branches overflow when multiplied", SampleFormat{sampleType: unix.PERF_SAMPLE_BRANCH_STACK},
			rec(0x0aaaaaaaaaaaaaab, 0)},
		{"read group", SampleFormat{sampleType: unix.PERF_SAMPLE_READ, readFormat: unix.PERF_FORMAT_GROUP},
			rec(1<<60, 0)},
	} {
		var s Sample
		if err := c.f.Sample(c.r, &s); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
}

func TestEmptyBranchStackWithAndWithoutHWIndex(t *testing.T) {
	f := SampleFormat{
		sampleType: unix.PERF_SAMPLE_BRANCH_STACK | unix.PERF_SAMPLE_REGS_USER,
		branchType: unix.PERF_SAMPLE_BRANCH_HW_INDEX,
		regsUser:   1,
	}
	for _, words := range [][]uint64{
		{0, 77, unix.PERF_SAMPLE_REGS_ABI_64, 42}, // nr, hw_idx, abi, ax
		{0, unix.PERF_SAMPLE_REGS_ABI_64, 42},     // nr, abi, ax
	} {
		b := appendHeader(nil, RecordSample, 0)
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		r, _ := finishRecord(b, 0)
		var s Sample
		if err := f.Sample(r, &s); err != nil {
			t.Error(err)
		} else if ax, ok := s.Reg(0); !ok || ax != 42 {
			t.Errorf("%d words: ax = %d, %v", len(words), ax, ok)
		}
	}
}

func TestRegCountsBitsOfTheMask(t *testing.T) {
	s := Sample{RegsMask: 0b1010, Regs: Words{1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}}
	for reg, want := range map[uint]uint64{1: 1, 3: 3} {
		if v, ok := s.Reg(reg); !ok || v != want {
			t.Errorf("Reg(%d) = %d, %v", reg, v, ok)
		}
	}
	for _, reg := range []uint{0, 2, 4, 63, 64, 1 << 20} {
		if _, ok := s.Reg(reg); ok {
			t.Errorf("Reg(%d) is there", reg)
		}
	}
}

// liveFormat is the format of the samples that Open asks for.
var liveFormat = SampleFormat{
	sampleType: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
		unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN |
		unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
	regsUser:    0xff0fff,
	sampleIDAll: true,
}

func TestSampleAllocatesNothing(t *testing.T) {
	r, _ := sampleOf(&liveFormat, rand.New(rand.NewSource(4)))
	var s Sample
	chain := make([]uint64, 100)
	out := make([]byte, 0, MaxRecordSize)
	if n := testing.AllocsPerRun(100, func() {
		if err := liveFormat.Sample(r, &s); err != nil {
			t.Fatal(err)
		}
		if _, err := liveFormat.AppendUnwound(out, r, &s, chain); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
}

func FuzzSample(f *testing.F) {
	rnd := rand.New(rand.NewSource(5))
	for range 50 {
		fm := randomFormat(rnd)
		r, _ := sampleOf(&fm, rnd)
		f.Add([]byte(r), fm.sampleType, fm.readFormat, fm.branchType, fm.regsUser, fm.regsIntr)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte, sampleType, readFormat, branchType, regsUser,
		regsIntr uint64) {
		defer costs.For(len(b)).Check(t)()
		fm := SampleFormat{sampleType: sampleType, readFormat: readFormat, branchType: branchType, regsUser: regsUser,
			regsIntr: regsIntr, sampleIDAll: true}
		r, err := CheckRecord(b)
		if err != nil {
			return
		}
		fm.Time(r)
		fm.ID(r)
		var s Sample
		if fm.Sample(r, &s) != nil {
			return
		}
		if uint64(len(s.Stack)) != s.DynSize || s.DynSize > s.StackSize {
			t.Fatalf("stack of %d, dyn_size %d, size %d", len(s.Stack), s.DynSize, s.StackSize)
		}
		for i := range s.Callchain.Len() {
			s.Callchain.At(i)
		}
		for reg := range uint(64) {
			s.Reg(reg)
		}
		out, err := fm.AppendUnwound(nil, r, &s, []uint64{1, 2})
		if err != nil {
			return
		}
		u := fm.Unwound()
		var again Sample
		if err := u.Sample(out, &again); err != nil {
			t.Fatalf("re-encoded sample: %v", err)
		}
	}))
}

func TestUserPart(t *testing.T) {
	for _, c := range []struct {
		name          string
		chain         []uint64
		first, before int
	}{
		{"no chain", nil, 0, 0},
		{"user only", []uint64{ContextUser, 1, 2}, 1, 0},
		{"behind the kernel's", []uint64{ContextKernel, 8, 9, ContextUser, 1}, 4, 2},
		{"behind two others", []uint64{ContextHypervisor, 7, ContextKernel, 8, ContextUser, 1}, 5, 2},
		{"marker alone", []uint64{ContextKernel, 8, ContextUser}, 3, 1},
		{"without", []uint64{ContextKernel, 8, 9}, 3, 2},
		{"with words that look like markers", []uint64{ContextUser, 1, ContextKernel, 8, ContextUser}, 1, 0},
	} {
		var s Sample
		for _, ip := range c.chain {
			s.Callchain = binary.LittleEndian.AppendUint64(s.Callchain, ip)
		}
		if first, before := s.UserPart(); first != c.first || before != c.before {
			t.Errorf("%s: %d, %d; want %d, %d", c.name, first, before, c.first, c.before)
		}
	}
}

func TestAddressesOfACallchain(t *testing.T) {
	type at struct{ context, ip uint64 }
	for _, c := range []struct {
		name  string
		misc  uint16
		chain []uint64
		want  []at
	}{
		{"empty", unix.PERF_RECORD_MISC_USER, nil, nil},
		{"kernel and user", unix.PERF_RECORD_MISC_KERNEL, []uint64{ContextKernel, 8, 9, ContextUser, 1},
			[]at{{ContextKernel, 8}, {ContextKernel, 9}, {ContextUser, 1}}},
		{"without markers", unix.PERF_RECORD_MISC_USER, []uint64{1, 2}, []at{{ContextUser, 1}, {ContextUser, 2}}},
		{"of a guest", unix.PERF_RECORD_MISC_GUEST_USER, []uint64{1}, []at{{ContextGuest, 1}}},
		{"unknown marker", unix.PERF_RECORD_MISC_USER, []uint64{ContextMax, 3}, []at{{ContextMax, 3}}},
		{"deferred user part", unix.PERF_RECORD_MISC_KERNEL, []uint64{ContextKernel, 8, ContextUserDeferred, 5},
			[]at{{ContextKernel, 8}}},
		{"zeros at the end", unix.PERF_RECORD_MISC_USER, []uint64{ContextUser, 1, 0, 2, 0, 0},
			[]at{{ContextUser, 1}, {ContextUser, 0}, {ContextUser, 2}}},
		{"words that look like markers", unix.PERF_RECORD_MISC_USER,
			[]uint64{ContextUser, 1, ContextKernel, 8, ContextUserDeferred, 2},
			[]at{{ContextUser, 1}, {ContextUser, ContextKernel}, {ContextUser, 8},
				{ContextUser, ContextUserDeferred}, {ContextUser, 2}}},
	} {
		s := Sample{Misc: c.misc}
		for _, ip := range c.chain {
			s.Callchain = binary.LittleEndian.AppendUint64(s.Callchain, ip)
		}
		var got []at
		for context, ip := range s.Addresses {
			got = append(got, at{context, ip})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}
