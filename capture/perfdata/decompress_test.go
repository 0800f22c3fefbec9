package perfdata

import (
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestWhatIsNoRecordIsNoneInCompressedData has bytes in compressed data that may be those of a stack, and
// records that announce more than is behind them.
func TestWhatIsNoRecordIsNoneInCompressedData(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	good := []byte{68, 0, 0, 0, 0, 0, 8, 0}
	for _, test := range []struct {
		name string
		head []byte
		want string
	}{
		{"type 0", []byte{0, 0, 0, 0, 0, 0, 8, 0}, "unknown type, 0x0, in compressed data"},
		{"a large type", []byte{0, 0x60, 1, 0, 0, 0, 8, 0}, "unknown type, 0x16000, in compressed data"},
		{"a short record", []byte{9, 0, 0, 0, 0, 0, 7, 0}, "SAMPLE record of 7 bytes, in compressed data"},
		{"trace data", []byte{71, 0, 0, 0, 0, 0, 8, 0}, "AUXTRACE record in compressed data"},
		{"compressed twice", []byte{81, 0, 0, 0, 0, 0, 8, 0}, "COMPRESSED record in compressed data"},
		{"padded", []byte{83, 0, 0, 0, 0, 0, 8, 0}, "COMPRESSED2 record in compressed data"},
	} {
		d, err := newDecompressor(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		d.payload = enc.EncodeAll(append(append([]byte(nil), good...), test.head...), nil)
		if rec, err := d.record(); err != nil || string(rec) != string(good) {
			t.Errorf("%s: the record before: %x, %v", test.name, rec, err)
		}
		if rec, err := d.record(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %x, %v", test.name, rec, err)
		}
		d.close()
	}
}
