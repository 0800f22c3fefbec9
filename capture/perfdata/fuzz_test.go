package perfdata

import (
	"bytes"
	"errors"
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
	err := r.ordered(&q, func(rec perfring.Record, f *perfring.Format, _ uint64) error {
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
}

func FuzzReader(f *testing.F) {
	for _, compress := range []int{0, 1} {
		f.Add(small(f, false, compress))
	}
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
