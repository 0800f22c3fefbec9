package flamegraph_test

import (
	"bytes"
	"fmt"
	"log"

	"unspool/capture/format/flamegraph"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// A recording as a page with a flame graph, which needs no other file and no network.
func Example() {
	const recordings = "../../../testdata/recordings/"
	r, err := perfdata.Open(recordings + "shapes/perf.data")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	names := symbols.New(symbols.Options{Root: recordings + "root"})
	p, err := profile.Load(r, names, profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var page bytes.Buffer
	if err := flamegraph.Write(&page, p, flamegraph.Options{Title: "shapes"}); err != nil {
		log.Fatal(err)
	}
	title, _, _ := bytes.Cut(page.Bytes(), []byte("</title>"))
	fmt.Printf("%s\n", title[bytes.LastIndexByte(title, '>')+1:])
	// Output:
	// shapes
}
