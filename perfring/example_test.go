package perfring_test

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"unspool/perfring"
)

func ExampleParseEvents() {
	events, err := perfring.ParseEvents("cpu-clock:u,page-faults")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range events {
		fmt.Printf("%s: type %d, config %d, user code only: %t\n", e.Name, e.Type, e.Config, e.ExcludeKernel)
	}
	// Output:
	// cpu-clock:u: type 1, config 0, user code only: true
	// page-faults: type 1, config 2, user code only: false
}

// A sample is decoded in place: in a ring, in the bytes of a file, or here in a slice.
func ExampleSampleFormat_Sample() {
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CALLCHAIN,
	})
	le := binary.LittleEndian
	b := le.AppendUint32(nil, unix.PERF_RECORD_SAMPLE)
	b = le.AppendUint16(b, unix.PERF_RECORD_MISC_USER)
	b = le.AppendUint16(b, 56)       // size of the record
	b = le.AppendUint64(b, 0x401136) // IP
	b = le.AppendUint32(b, 4711)     // PID
	b = le.AppendUint32(b, 4712)     // TID
	b = le.AppendUint64(b, 3)        // entries of the callchain
	const user = ^uint64(512 - 1)    // PERF_CONTEXT_USER
	for _, entry := range []uint64{user, 0x401136, 0x401190} {
		b = le.AppendUint64(b, entry)
	}

	record, err := perfring.CheckRecord(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	var s perfring.Sample
	if err := format.Sample(record, &s); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("process %d, thread %d at %#x\n", s.PID, s.TID, s.IP)
	for i := 1; i < s.Callchain.Len(); i++ {
		fmt.Printf("  %#x\n", s.Callchain.At(i))
	}
	// Output:
	// process 4711, thread 4712 at 0x401136
	//   0x401136
	//   0x401190
}
