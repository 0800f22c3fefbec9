package syscap_test

import (
	"bytes"
	"fmt"
	"log"

	"unspool/capture/format/syscap"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// A recording as a capture of Sysprof, which is written while the recording is loaded.
func Example() {
	const recordings = "../../../testdata/recordings/"
	r, err := perfdata.Open(recordings + "shapes/perf.data")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	names := symbols.New(symbols.Options{Root: recordings + "root"})
	var capture bytes.Buffer
	w := syscap.New(&capture, r, syscap.Options{})
	p, err := profile.Load(r, names, profile.Options{Watcher: w, NoStacks: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Finish(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%x begins it, for %d samples\n", capture.Bytes()[:4], p.Count())
	// Output:
	// 5e97cafd begins it, for 62 samples
}
