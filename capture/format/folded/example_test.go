package folded_test

import (
	"fmt"
	"log"
	"strings"

	"unspool/capture/format/folded"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// The first stacks of a recording, with how many samples have each.
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
	var text strings.Builder
	if err := folded.Write(&text, p, folded.Options{}); err != nil {
		log.Fatal(err)
	}
	for _, line := range strings.SplitAfter(text.String(), "\n")[:3] {
		fmt.Print(line)
	}
	// Output:
	// shapes;_start 1
	// shapes;_start;bare_main 1
	// shapes;_start;bare_main;shapes::Group<5>::area;shapes::Group<5>::nested;shapes::Circle::area 6
}
