package perfdata

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"unspool/perfring"
	"unspool/unwind"

	"golang.org/x/sys/unix"
)

func TestEndSurvivesInASample(t *testing.T) {
	const others = ^uint16(endMask << endShift)
	for r := range unwind.Reason(unwind.NumReasons) {
		for _, misc := range []uint16{0, unix.PERF_RECORD_MISC_USER,
			unix.PERF_RECORD_MISC_KERNEL | unix.PERF_RECORD_MISC_EXACT_IP, others, ^uint16(0)} {
			rec := sample(11, 5, 7, 0x1000)
			le.PutUint16(rec[4:], misc)
			want := slices.Clone(rec)
			setEnd(rec, r)
			got := perfring.Record(rec).Misc()
			if end, ok := End(got); !ok || end != r {
				t.Errorf("%s in %#x became %s, %v", r, misc, end, ok)
			}
			if got&others != misc&others {
				t.Errorf("%s: %#x became %#x", r, misc, got)
			}
			copy(rec[4:6], want[4:6])
			if !slices.Equal(rec, want) {
				t.Errorf("%s changed more than the header's misc", r)
			}
		}
	}
}

// Samples of other programs have no reason, and a value that no version has written is not taken for one.
func TestEndIsNotMadeUp(t *testing.T) {
	for _, misc := range []uint16{0, unix.PERF_RECORD_MISC_USER, unix.PERF_RECORD_MISC_GUEST_KERNEL,
		unix.PERF_RECORD_MISC_EXACT_IP, 1 << 12, 1 << 13, 1 << 15,
		(unwind.NumReasons + 1) << endShift, endMask << endShift} {
		if misc>>endShift&endMask == unwind.NumReasons {
			continue // this would be a valid reason if there were that many
		}
		if r, ok := End(misc); ok {
			t.Errorf("%#x is %s", misc, r)
		}
	}
}

// Readers find the samples as they were, perf among them.
func TestReadersOfSamplesThatSayTheirEnd(t *testing.T) {
	path := t.TempDir() + "/perf.data"
	w, err := Create(Options{Path: path, Events: twoEvents()})
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for r := range unwind.Reason(unwind.NumReasons) {
		rec := sample(11, uint64(1e9)+uint64(r), 7, 0x1000+uint64(r))
		setEnd(rec, r)
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, fmt.Sprintf("%x", 0x1000+int(r)))
	}
	closeWriter(t, w)
	t.Run("perf", func(t *testing.T) {
		if got := strings.Fields(perf(t, nil, "script", "-F", "ip", "-i", path)); !slices.Equal(got, addrs) {
			t.Errorf("%q, want %q", got, addrs)
		}
	})
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var ends []unwind.Reason
	if err := r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		var s perfring.Sample
		if rec.Type() != perfring.RecordSample {
			return nil
		}
		if err := f.Sample(rec, &s); err != nil {
			return err
		}
		if s.CPUMode() != unix.PERF_RECORD_MISC_USER {
			t.Errorf("CPU mode %d", s.CPUMode())
		}
		end, _ := End(s.Misc)
		ends = append(ends, end)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, end := range ends {
		if end != unwind.Reason(i) {
			t.Errorf("sample %d: %s", i, end)
		}
	}
	if len(ends) != len(addrs) {
		t.Errorf("%d samples of %d", len(ends), len(addrs))
	}
}

// TestPairEncoding writes and reads the last entry of a pair's callchain.
func TestPairEncoding(t *testing.T) {
	for _, end := range []unwind.FrameWalkEnd{unwind.NoFrame, unwind.OffStack, unwind.CopyEnds,
		unwind.KernelLimit} {
		for flags := range 4 {
			for _, reach := range []int{0, 8, 65528, 1<<40 - 8} {
				p := PointerStack{End: end, Kernel: flags&1 != 0, Agrees: flags&2 != 0, Reach: reach}
				w := p.encode()
				if got := DecodePair(w); !reflect.DeepEqual(got, p) {
					t.Errorf("%+v, want %+v", got, p)
				}
				// Readers of callchains drop zeros at the end, and take large numbers for markers.
				if w == 0 || w >= perfring.ContextMax {
					t.Errorf("%+v is %#x", p, w)
				}
			}
		}
	}
	for _, w := range []uint64{0, ^uint64(0), perfring.ContextMax} { // of a recording by somebody else
		if p := DecodePair(w); p.Reach < 0 {
			t.Errorf("%#x is %+v", w, p)
		}
	}
}
