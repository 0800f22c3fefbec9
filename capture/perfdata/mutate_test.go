package perfdata

import (
	"testing"

	"github.com/klauspost/compress/zstd"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// FuzzCompressed reads what a zstd stream that is well-formed holds, in pieces: records of any kind or none.
func FuzzCompressed(f *testing.F) {
	f.Add([]byte{9, 0, 0, 0, 2, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 68, 0, 0, 0, 0, 0, 8, 0}, uint8(10), uint8(1))
	f.Add(make([]byte, 1<<16), uint8(255), uint8(2))
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<16))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, records []byte, piece, level uint8) {
		defer costs.For(len(records) + 1<<20).Check(t)() // and the decoder's window
		packed := enc.EncodeAll(records, nil)
		d, err := newDecompressor(uint32(level)%23, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		got := 0
		for len(packed) > 0 {
			n := min(int(piece)+1, len(packed))
			d.payload, packed = packed[:n], packed[n:]
			for {
				rec, err := d.record()
				if err != nil {
					return
				}
				if rec == nil {
					break
				}
				if len(rec) != rec.Size() || string(rec) != string(records[got:got+len(rec)]) {
					t.Fatalf("a record of %d bytes that is not the one at %d", len(rec), got)
				}
				got += len(rec)
			}
		}
	}))
}
