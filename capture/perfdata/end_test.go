package perfdata

import (
	"fmt"
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
		for _, misc := range []uint16{0, unix.PERF_RECORD_MISC_USER, unix.PERF_RECORD_MISC_KERNEL | unix.PERF_RECORD_MISC_EXACT_IP, others, ^uint16(0)} {
			rec := sample(11, 5, 7, 0x1000)
			le.PutUint16(rec[4:], misc)
			want := slices.Clone(rec)
			SetEnd(rec, r)
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

// What other programs write says nothing, and what no version has written is not taken for a reason.
func TestEndIsNotMadeUp(t *testing.T) {
	for _, misc := range []uint16{0, unix.PERF_RECORD_MISC_USER, unix.PERF_RECORD_MISC_GUEST_KERNEL, unix.PERF_RECORD_MISC_EXACT_IP, 1 << 12, 1 << 13, 1 << 15,
		(unwind.NumReasons + 1) << endShift, endMask << endShift} {
		if misc>>endShift&endMask == unwind.NumReasons {
			continue // the last reason, once there are that many
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
		SetEnd(rec, r)
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, fmt.Sprintf("%x", 0x1000+int(r)))
	}
	closeWriter(t, w)
	t.Run("perf", func(t *testing.T) {
		if got, want := strings.Fields(perf(t, nil, "script", "-F", "ip", "-i", path)), addrs; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var ends []unwind.Reason
	if err := r.Ordered(func(rec perfring.Record, f *perfring.Format, _ uint64) error {
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
