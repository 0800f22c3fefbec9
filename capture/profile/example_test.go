package profile_test

import (
	"fmt"
	"log"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// The functions in which most samples of a recording were taken.
func Example() {
	const recordings = "../../testdata/recordings/"
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
	self := make(map[string]uint64)
	for _, s := range p.Samples {
		self[p.Frames[p.Nodes[s.Node].Frame].Name] += s.Count
	}
	name := profile.MostSampled(self)
	fmt.Printf("%d of %d samples are in %s\n", self[name], p.Count(), name)
	// Output:
	// 30 of 62 samples are in shapes::Circle::area
}
