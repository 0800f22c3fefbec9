package recorded

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// FuzzRecordsOfARecording converts a recording that is well-formed except for the contents of its records,
// each of which has the right size. A record is made from the next bytes of the input: its type, its misc
// bits, and its length in words (0 for a sample, which has registers and a stack), followed by its contents.
func FuzzRecordsOfARecording(f *testing.F) {
	f.Add([]byte{3, 0, 3, 7, 0, 0, 0, 7, 0, 0, 0, 'c', 'o', 'm', 'm', 0, 0, 0, 0, 0, 9, 2, 0})
	f.Add([]byte{10, 2, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 2, 0, 9, 2, 0, 7, 2, 4, 4, 2, 5, 12, 0, 6})
	f.Add([]byte{68, 0, 0, 81, 0, 2, 71, 0, 5, 79, 0, 1, 9, 1, 0})
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { nowhere.Close() })
	to := fmt.Sprintf("/dev/fd/%d", nowhere.Fd())
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte) {
		defer costs.For(len(b) + 64<<10).Check(t)()
		r := &rawRecording{events: rawEvents()}
		time := uint64(1000)
		for len(b) >= 3 {
			typ, misc, words := perfring.RecordType(b[0]), uint16(b[1]), int(b[2])%64
			b = b[3:]
			time += 10
			if typ == perfring.RecordSample && words == 0 {
				stack := b[:min(len(b), 64)]
				r.records = append(r.records, sessiontest.RawSample{PID: 7, Misc: unix.PERF_RECORD_MISC_USER, IP: 0x1000,
					ABI: unix.PERF_SAMPLE_REGS_ABI_64, SP: 0x7000, Stack: append(stack[:len(stack):len(stack)],
						make([]byte, 64-len(stack))...), DynSize: uint64(misc) % 65}.At(time))
				b = b[len(stack):]
				continue
			}
			body := make([]byte, 8*words)
			b = b[copy(body, b):]
			var rec perfring.Record
			if typ < 64 {
				rec = sessiontest.RawRecord(typ, time, 1+uint64(misc)%2, body...)
			} else {
				rec = sessiontest.ARecord(typ, body...)
			}
			rec[4], rec[5] = byte(misc), 0
			r.records = append(r.records, rec)
		}
		for _, input := range [][]byte{r.file(), r.pipe()} {
			_, _, _ = convertBytes(t, input, func(o *Options) { o.Output, o.Jobs = to, 1 })
		}
	}))
}
