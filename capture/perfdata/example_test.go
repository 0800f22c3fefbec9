package perfdata_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
)

// A recording of one record is written and read back.
func Example() {
	folder, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "perf.data")

	event := perfring.Attr{
		Name: "cpu-clock",
		PerfEventAttr: unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE,
			Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID},
		IDs: []uint64{1},
	}
	w, err := perfdata.Create(perfdata.Options{
		Path: path, Events: []perfring.Attr{event}, CommandLine: []string{"example", "record"},
	})
	if err != nil {
		log.Fatal(err)
	}
	format := perfring.NewFormat(&event.PerfEventAttr)
	record, err := perfring.AppendComm(nil, &format, &perfring.Comm{PID: 4711, TID: 4711, Comm: []byte("hello")},
		nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(w.Write(record), w.Close()); err != nil {
		log.Fatal(err)
	}

	r, err := perfdata.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	fmt.Println(r.Events()[0].Name, r.CommandLine())
	for {
		record, err := r.Next() // valid until the next call
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		var comm perfring.Comm
		if record.Type() == perfring.RecordComm && perfring.DecodeComm(record, &comm) == nil {
			fmt.Printf("%d is called %s\n", comm.PID, bytes.TrimRight(comm.Comm, "\x00"))
		}
	}
	// Output:
	// cpu-clock [example record]
	// 4711 is called hello
}
