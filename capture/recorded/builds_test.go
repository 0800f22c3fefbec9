package recorded

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// TestBuildIDOfAPath looks up the build ID of a path in a recording's list. If there are two for one path, it
// is not known which one a mapping had.
func TestBuildIDOfAPath(t *testing.T) {
	id := func(b byte) []byte { return bytes.Repeat([]byte{b}, 20) }
	for _, c := range []struct {
		name   string
		builds []perfdata.FileBuildID
		want   []byte // of /bin/a
	}{
		{"one", []perfdata.FileBuildID{{Path: "/bin/a", ID: id(1)}, {Path: "/bin/b", ID: id(2)}}, id(1)},
		{"none", []perfdata.FileBuildID{{Path: "/bin/b", ID: id(2)}}, nil},
		{"two", []perfdata.FileBuildID{{Path: "/bin/a", ID: id(1)}, {Path: "/bin/a", ID: id(2)}}, nil},
		{"two, and others", []perfdata.FileBuildID{
			{Path: "/bin/a", ID: id(1)}, {Path: "/bin/b", ID: id(3)}, {Path: "/bin/a", ID: id(2)}}, nil},
		{"three", []perfdata.FileBuildID{
			{Path: "/bin/a", ID: id(1)}, {Path: "/bin/a", ID: id(2)}, {Path: "/bin/a", ID: id(3)}}, nil},
		{"the kernel's", []perfdata.FileBuildID{{Path: "/bin/a", ID: id(1), Kernel: true}}, nil},
	} {
		var recording bytes.Buffer
		w, err := perfdata.Create(perfdata.Options{Path: "-", Out: &recording, Events: rawEvents()})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range c.builds {
			w.BuildID(b.Path, b.ID, b.Kernel)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, r := readRecords(t, recording.Bytes())
		if n := len(r.BuildIDs()); n != len(c.builds) {
			t.Errorf("%s: %d builds are told of", c.name, n)
		}
		files := (&conversion{reader: r}).offline()
		if got := files.BuildID("/bin/a"); got != vmas.NewBuildID(c.want) {
			t.Errorf("%s: %s, want %x", c.name, got, c.want)
		}
	}
}

// TestConvertCountsRecordsOfUnknownEvents converts records whose ID is none of the events': what is
// in them is not known, so they are left out, and counted.
func TestConvertCountsRecordsOfUnknownEvents(t *testing.T) {
	r := &rawRecording{events: rawEvents(), records: []perfring.Record{
		secretSample(5, 64), secretSample(6, 64), secretSample(7, 64),
		sessiontest.RawRecord(perfring.RecordSwitch, 8, 1), sessiontest.RawRecord(perfring.RecordSwitch, 9, 99),
	}}
	binary.LittleEndian.PutUint64(r.records[1][8:], 99) // the ID of a sample stands first
	for jobs := 1; jobs <= 2; jobs++ {
		output, out, err := convertBytes(t, r.file(), func(o *Options) { o.Jobs = jobs })
		if err != nil {
			t.Fatal(err)
		}
		if st := out.Stats; st.Samples != 2 || st.Malformed != 2 {
			t.Errorf("-j %d: %d samples, %d malformed", jobs, st.Samples, st.Malformed)
		}
		if got, _ := readRecords(t, output); len(got) != 3 || holdsSecret(output) {
			t.Errorf("-j %d: %d records, of stacks: %v", jobs, len(got), holdsSecret(output))
		}
	}
}

// TestSampledFilesAreListedInOrder expects them by path, and those of one path by build ID.
func TestSampledFilesAreListedInOrder(t *testing.T) {
	files := []sampledFile{{"/c", "1"}, {"/a", "3"}, {"/b", "5"}, {"/b", "4"}}
	slices.SortFunc(files, sampledFile.compare)
	if want := []sampledFile{{"/a", "3"}, {"/b", "4"}, {"/b", "5"}, {"/c", "1"}}; !slices.Equal(files, want) {
		t.Errorf("%q, want %q", files, want)
	}
}

// TestConvertSumsItsLanesUp expects the same counts for every number of cores. The mapping in which all
// samples lie is in the first batch only, but every lane has to know it.
func TestConvertSumsItsLanesUp(t *testing.T) {
	events := rawEvents()
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	mmap, err := perfring.AppendMmap(nil, &f, &perfring.Mmap{PID: 7, TID: 7, Misc: unix.PERF_RECORD_MISC_USER,
		Addr: 0x1000, Len: 0x1000, Path: []byte("//anon")}, &perfring.SampleID{PID: 7, TID: 7, Time: 4, ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rawRecording{events: events, records: []perfring.Record{mmap}}
	for i := range uint64(3 * batchRecords) {
		s := sessiontest.UserSample(7, 0x1234)
		if s.DynSize = 8 * (i % 9); i%2 == 0 {
			s.Misc, s.Chain = unix.PERF_RECORD_MISC_KERNEL, []uint64{^uint64(127), 9}
		}
		r.records = append(r.records, s.At(5+i))
	}
	input := r.file()
	_, one, err := convertBytes(t, input, nil)
	if err != nil {
		t.Fatal(err)
	}
	counts := func(st counts.Stats) counts.Stats {
		return counts.Stats{Samples: st.Samples, User: st.User, Exec: st.Exec, Malformed: st.Malformed, Frames: st.Frames,
			StackCopied: st.StackCopied, Ended: st.Ended, FramesBy: st.FramesBy}
	}
	want := counts(one.Stats)
	if want.StackCopied == 0 || want.Samples != 3*batchRecords || want.Ended[unwind.NoCFI] != want.User {
		t.Errorf("%+v", want)
	}
	for jobs := 2; jobs <= 3; jobs++ {
		_, several, err := convertBytes(t, input, func(o *Options) { o.Jobs = jobs })
		if got := counts(several.Stats); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("-j %d: %+v, want %+v, %v", jobs, got, want, err)
		}
	}
}
