package perfdata

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"unspool/perfring"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// fuzzRead calls all methods of a Reader.
func fuzzRead(t *testing.T, r *Reader, size int) {
	defer r.Close()
	q := queue{limit: 1 << 20}
	var s perfring.Sample
	const most = 1 << 16 // records; compressed ones can be many
	n := 0
	errEnough := errors.New("enough")
	err := r.ordered(&q, func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if len(rec) != rec.Size() {
			t.Fatalf("record of %d bytes says %d", len(rec), rec.Size())
		}
		if rec.Type() == perfring.RecordSample && f.Sample(rec, &s) == nil {
			r.Event(s.ID)
		}
		if n++; n == most {
			return errEnough
		}
		return nil
	})
	var damage *DamageError
	if err != nil && err != errEnough &&
		(!errors.As(err, &damage) || damage.Offset < 0 || damage.Offset > int64(size)) {
		t.Fatalf("error %v", err)
	}
	for f := range Feature(40) {
		r.Text(f)
		if len(r.Feature(f)) > size {
			t.Fatalf("%v is longer than the recording", f)
		}
	}
	r.CommandLine()
	r.BuildIDs()
	kept := 0
	for _, m := range r.PerfMaps() {
		kept += perfMapHead + len(m.Packed)
	}
	if kept > size {
		t.Fatalf("%d bytes of perf maps in a recording of %d", kept, size)
	}
}

func FuzzReader(f *testing.F) {
	for _, compress := range []int{0, 1} {
		f.Add(small(f, false, compress))
	}
	kept, err := os.ReadFile(withMaps(f, []PerfMap{{PID: 1, Packed: pack(f, "10 8 one\n")}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kept)
	for _, recording := range inputs.Files(8, 64<<10, "../../dist/inputs/*.data") {
		f.Add(recording)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, data []byte) {
		defer costs.For(len(data)).Check(t)()
		if r, err := open(data); err == nil {
			fuzzRead(t, r, len(data))
		}
	}))
}

func FuzzPipe(f *testing.F) {
	for _, compress := range []int{0, 1} {
		f.Add(small(f, true, compress)[pipeSize:])
	}
	for _, recording := range inputs.Files(8, 64<<10, "../../dist/inputs/*.pipe") {
		f.Add(recording[pipeSize:])
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, data []byte) {
		defer costs.For(len(data)).Check(t)()
		data = append(le.AppendUint64(le.AppendUint64(nil, magic), pipeSize), data...)
		r, err := newReader("fuzz", bytes.NewReader(data), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		fuzzRead(t, r, len(data))
	}))
}
